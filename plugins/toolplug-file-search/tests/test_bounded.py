"""What a stranger sends costs the host a bounded amount of work, whatever it holds, and ends with a reason."""

from __future__ import annotations

import json
import sqlite3
from asyncio import create_task
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from tests.cpu_cost import UNBOUNDED, longest_callback

from toolplug_file_search.documents.analysis import MAX_CACHED, Analyzer, Word, words
from toolplug_file_search.documents.conversion import convert
from toolplug_file_search.ingest.background import MAX_TRIES
from toolplug_file_search.search.filters import MAX_COMPARISONS
from toolplug_file_search.storage.database import Database, IndexUnavailable, TimeLimit

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]
INDEX = Path(".toolplug") / "providers" / "file_search" / "index.db"
EQUAL = {"type": "eq", "key": "k", "value": 1}

HOSTILE = {
    "blanks.md": "# x" + " " * 16_000 + "x",
    "marks.md": "#" + " " * 50_000 + "x" + " " * 50_000 + "#" * 50_000,
    "headings.md": "# " + "a" * 100_000 + "\nb\n" + "\n\nc" * 1_000,
    "header.csv": "h" * 120_000 + "\n" + "1\n" * 6_000,
    "columns.csv": "h," * 1_000 + "\n" + ("1," * 1_000 + "\n") * 100,
    "quotes.csv": "'\"," * 1_365 + "\n" + '"' * 4_096,
    "paragraph.txt": "word " * 100_000,
    "letters.txt": "x" * 300_000,
    "accents.txt": "a" + "\u0301\u0316" * 50_000,
    "nested.html": "<div>" * 100_000 + "x",
    "comments.html": "<!" * 20_000 + "x",
}


@pytest.mark.process
@pytest.mark.requirement("I30-1-bounded-file-requests")
async def test_hostile_documents_are_read_without_holding_the_loop_or_memory(serve: Serve) -> None:
    async with serve() as served:
        store, _ = await served.one.add("river.md", "a river")
        with longest_callback() as longest:
            for name, content in HOSTILE.items():
                file = await served.one.upload(name, content)
                await served.one.http.post(f"/v1/vector_stores/{store}/files", json={"file_id": file})
                member = await served.one.read(store, file)
                assert member["status"] in ("completed", "failed"), name
                assert (await served.two.http.get("/v1/vector_stores")).status_code == 200
        assert longest.units < UNBOUNDED
        assert [item["file"] for item in await served.one.found("river", max_results=1)] == ["river.md"]


@pytest.mark.slow
def test_a_table_repeats_its_header_within_a_bound_and_the_rows_that_are_left_out_are_counted() -> None:
    wide = convert("a.csv", ("h" * 90 + ",").encode() * 500 + b"\n" + (b"1," * 500 + b"\n") * 500)
    assert len(wide.text) <= 20_000_000
    assert wide.left_out == ["the rows after the first 421"]
    long = convert("a.csv", b"h" * 120_000 + b"\n" + b"1\n" * 6_000)
    assert len(long.text) < 1_000_000
    assert long.left_out == []


def nested(depth: int) -> dict[str, object]:
    found: dict[str, object] = dict(EQUAL)
    for _ in range(depth):
        found = {"type": "and", "filters": [found]}
    return found


REQUESTS = {
    "a word of a million letters": ({"query": ["x" * 1_000_000]}, 413),
    "many queries": ({"query": ["a"] * 20_000}, 400),
    "long queries together": ({"query": ["a" * 3_000] * 4}, 400),
    "a query of one word": ({"query": "x" * 10_000}, 200),
    "a query of accents": ({"query": "a" + "\u0301\u0316" * 4_999}, 200),
    "a query of ligatures": ({"query": "\ufdfa" * 10_000}, 200),
    "lists of lists": ({"query": [[]] * 30_000}, 400),
    "wide filters": ({"query": "x", "filters": {"type": "or", "filters": [EQUAL] * 2_000}}, 400),
    "long filters": ({"query": "x", "filters": {"type": "in", "key": "k", "value": ["v"] * 20_000}}, 400),
    "deep filters": ({"query": "x", "filters": nested(50)}, 400),
    "unknown fields": ({"query": "x", **{str(number): number for number in range(9_000)}}, 400),
}


@pytest.mark.process
@pytest.mark.requirement("I30-1-bounded-file-requests", "I30-1-bounded-search")
async def test_hostile_searches_are_refused_or_answered_without_holding_the_loop(serve: Serve) -> None:
    async with serve() as served:
        store, _ = await served.one.add("de.md", "Die Krankenversicherung zahlt Beiträge.")
        with longest_callback() as longest:
            for name, (body, status) in REQUESTS.items():
                content = json.dumps(body).encode()
                asked = served.one.http.post(f"/v1/vector_stores/{store}/search", content=content)
                answer = await create_task(asked)
                assert answer.status_code == status, name
        assert longest.units < UNBOUNDED


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({"type": "or", "filters": [EQUAL] * 20}, True),
        ({"type": "in", "key": "k", "value": list(range(MAX_COMPARISONS))}, True),
        ({"type": "in", "key": "k", "value": list(range(MAX_COMPARISONS + 1))}, False),
        ({"type": "or", "filters": [{"type": "in", "key": "k", "value": list(range(10))}] * 10}, True),
        ({"type": "or", "filters": [{"type": "in", "key": "k", "value": list(range(10))}] * 11}, False),
        (nested(7), True),
        (nested(8), False),
    ],
    ids=range(7),
)
@pytest.mark.process
@pytest.mark.requirement("I30-1-bounded-search")
async def test_a_filter_has_a_sum_over_all_its_levels(serve: Serve, filters: object, passes: bool) -> None:
    async with serve() as served:
        store = await served.one.store()
        body = {"query": "x", "filters": filters}
        answer = await served.one.http.post(f"/v1/vector_stores/{store}/search", json=body)
        options = {"filters": filters}
        called = await served.one.call("file_search", options, query="x") if passes else None
        assert answer.status_code == (200 if passes else 400)
        assert called is None or not called.is_error


@pytest.mark.requirement("I30-1-bounded-search")
def test_what_is_longer_than_64_letters_is_no_word() -> None:
    assert list(words("x" * 65 + " " + "y" * 64)) == [Word("y" * 64)]
    assert list(words("a" * 60 + "_" + "b" * 60)) == [Word("a" * 60), Word("b" * 60)]


@pytest.mark.slow
def test_the_table_of_stems_is_bounded_by_bytes() -> None:
    analyzer = Analyzer()
    for number in range(60_000):
        analyzer.tokens([Word(f"{number:064d}")], "english")
    assert analyzer.cached_bytes <= MAX_CACHED


@pytest.mark.requirement("I30-1-bounded-search")
def test_a_read_ends_at_its_limit_and_when_its_caller_is_gone(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with closing(Database(tmp_path / "index.db")) as database:
        gone = TimeLimit()
        gone.stop()
        for limit in (TimeLimit(0.05), gone):
            with pytest.raises(IndexUnavailable, match="takes too long"), database.reading(limit) as connection:
                connection.execute(endless).fetchone()
        with database.reading() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.process
@pytest.mark.requirement("I30-1-documents-in-workers")
async def test_a_file_that_was_begun_three_times_without_an_end_has_failed(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        file = await served.one.upload("a.txt", "river")
    with closing(sqlite3.connect(tmp_path / INDEX)) as index, index:  # as three kills of the host leave it
        [corpus] = index.execute("SELECT number FROM corpora").fetchone()
        index.execute(
            "INSERT INTO stores (id, corpus, name, metadata, created_at) VALUES ('vs_1', ?, '', '{}', 1)", [corpus]
        )
        index.execute(
            "INSERT INTO members (store_id, file_id, attributes, created_at) VALUES ('vs_1', ?, '{}', 1)", [file]
        )
        index.execute("UPDATE files SET status = 'waiting', tries = ?", [MAX_TRIES])
    for _ in range(2):  # and it stays so
        async with serve() as served:
            member = await served.one.read("vs_1", file)
            reason = "'a.txt' cannot be read: the process ended 3 times while it was read"
            assert (member["status"], member["last_error"]["message"]) == ("failed", reason)


@pytest.mark.process
@pytest.mark.requirement("I30-9-close-in-an-ingest")
async def test_the_host_closes_at_once_in_the_middle_of_a_document_and_the_next_one_reads_it(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "local.txt").write_text("lake " * 200_000)
    async with serve(paths=[str(tmp_path / "docs")]) as served:
        file = await served.one.upload("a.txt", "river " * 200_000)
        store = await served.one.store(file_ids=[file])
        with closing(sqlite3.connect(tmp_path / INDEX)) as index:
            while index.execute("SELECT tries FROM files WHERE id = ?", [file]).fetchone() != (1,):
                await served.one.member(store, file)
    with closing(sqlite3.connect(tmp_path / INDEX)) as index:
        assert index.execute("SELECT status, tries FROM files WHERE id = ?", [file]).fetchone() == ("waiting", 0)
    async with serve() as served:
        assert (await served.one.read(store, file))["status"] == "completed"
