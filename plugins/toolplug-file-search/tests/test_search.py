"""What is found, in which order, and how a result says where it stands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from toolplug import ToolStatus

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.usefixtures("reading_once")]

Serve = Callable[..., AbstractAsyncContextManager[Any]]

OTTERS = """# Otters

They live in rivers.

## Sleep

Otters hold hands while they sleep,
so that none drifts away.
"""
OPERATORS = ['"', "*", "NEAR(", "a OR", "text:", "-", "^", "{a b}:c", "\0", "'; DROP TABLE files;--", "木", "🦦"]


@pytest.mark.requirement("I2-8-file-search")
async def test_a_result_is_a_passage_with_its_place_and_a_source_to_cite(serve: Serve) -> None:
    async with serve() as served:
        _, file = await served.one.add("otters.md", OTTERS)
        result = await served.one.call("file_search", query="who holds hands?")
    start = OTTERS.index("## Sleep")
    [found] = json.loads(result.output)["results"]
    assert found == {
        "file": "otters.md",
        "file_id": file,
        "cite": "otters.md:5-8",
        "headings": "Otters > Sleep",
        "passage": OTTERS[start:].rstrip(),
        "score": found["score"],
        "lines": [5, 8],
        "characters": [start, len(OTTERS) - 1],
    }
    assert 0 < found["score"] < 1
    assert result.structured == json.loads(result.output)
    assert result.metadata == {
        "queries": ["who holds hands?"],
        "results": [
            {
                "file_id": file,
                "filename": "otters.md",
                "score": found["score"],
                "text": OTTERS[start:].rstrip(),
            }
        ],
        "citations": [
            {
                "type": "file_citation",
                "index": 0,
                "file_id": file,
                "filename": "otters.md",
                "score": found["score"],
                "lines": [5, 8],
            }
        ],
    }


async def test_words_are_found_in_other_forms_and_without_accents(serve: Serve) -> None:
    async with serve() as served:
        await served.one.add("a.txt", "The café was drained.")
        assert [len(await served.one.found(query)) for query in ("Cafe", "draining", "CAFÉS", "tea")] == [1, 1, 1, 0]


async def test_headings_and_names_count_more_than_text(serve: Serve) -> None:
    filler = " ".join(f"word{number}" for number in range(60))
    async with serve() as served:
        store, _ = await served.one.add("a.md", f"# Start\n\nBackups are made at night. {filler}")
        await served.one.add("b.md", f"# Backups\n\nThey are made at night. {filler}", store)
        await served.one.add("backups.md", f"# Start\n\nMade at night. {filler}", store)
        found = await served.one.found("backups")
    assert [item["file"] for item in found] == ["b.md", "backups.md", "a.md"]


async def test_words_side_by_side_count_more_than_the_same_words_apart(serve: Serve) -> None:
    async with serve() as served:
        store, _ = await served.one.add("apart.txt", "the red fox and the blue house by the sea")
        await served.one.add("together.txt", "the red house and the blue fox by the sea", store)
        assert [item["file"] for item in await served.one.found("red house")] == ["together.txt", "apart.txt"]


async def test_one_document_of_a_tenant_is_ranked_among_many_of_the_operator(serve: Serve, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.md").write_text(f"# Part {number}\n\nThe release is made by the team on day {number}.\n")
    async with serve(paths=[str(tmp_path)]) as served:
        await served.one.add("mine.md", "# My release\n\nMy own release is called Heron.\n")
        assert (await served.one.found("which release is Heron"))[0]["file"] == "mine.md"


async def test_among_many_passages_words_that_most_of_them_hold_do_not_count(serve: Serve) -> None:
    async with serve() as served:
        await served.one.add("many.md", "\n".join(f"# Part {number}\n\nthe otter {number}" for number in range(1200)))
        found = await served.one.found("the otter 77", max_results=50)
        assert [item["headings"] for item in found] == ["Part 77"]
        assert len(await served.one.found("the otter", max_results=50)) == 50


async def test_no_query_is_read_as_an_operator_of_the_index(serve: Serve) -> None:
    async with serve() as served:
        await served.one.add("x.txt", "plain words")
        found = [
            (query, len(await served.one.found(query)), len(await served.one.found(f"{query} words")))
            for query in OPERATORS
        ]
    assert found == [(query, 0, 1) for query in OPERATORS]


async def test_an_empty_query_and_one_without_end_are_refused_by_the_schema(serve: Serve) -> None:
    async with serve() as served:
        results = [await served.one.call("file_search", query=query) for query in ("", "x" * 10_001)]
        assert [result.status for result in results] == [ToolStatus.INVALID_ARGUMENTS] * 2
        assert await served.one.found("x " * 5_000) == []


async def test_the_configuration_and_the_call_say_how_many_passages(serve: Serve) -> None:
    async with serve(max_results=2) as served:
        store = await served.one.store()
        for number in range(6):
            await served.one.add(f"{number}.txt", f"river number {number}", store)
        assert len(await served.one.found("river")) == 2
        assert len(await served.one.found("river", max_results=4)) == 4


@pytest.mark.requirement("C-4-shipped-file-search")
async def test_the_stub_narrows_what_a_call_may_look_through(serve: Serve) -> None:
    async with serve() as served:
        first, _ = await served.one.add("first.txt", "river one")
        second, _ = await served.one.add("second.txt", "river two")

        async def files(options: dict[str, object], **arguments: object) -> list[str]:
            result = await served.one.call("file_search", options, query="river", **arguments)
            return [item["file"] for item in json.loads(result.output)["results"]]

        assert await files({"vector_store_ids": [first]}) == ["first.txt"]
        assert await files({"vector_store_ids": [first]}, vector_store_ids=[first, second]) == ["first.txt"]
        assert await files({"vector_store_ids": [first]}, vector_store_ids=[second]) == []
        assert len(await files({"max_num_results": 1}, max_results=5)) == 1
        assert await files({"ranking_options": {"score_threshold": 1}}) == []
        hosted = served.host.registry.catalog["file_search"].definition.hosted
        assert hosted.stubs == ("file_search",)
        assert set(hosted.options.value["properties"]) == {
            "vector_store_ids",
            "max_num_results",
            "ranking_options",
            "filters",
        }


async def test_a_vector_store_that_is_not_there_is_named(serve: Serve) -> None:
    async with serve() as served:
        result = await served.one.call("file_search", query="river", vector_store_ids=["vs_x"])
    assert (result.status, result.output) == (ToolStatus.TOOL_ERROR, "no vector store 'vs_x'")


@pytest.mark.requirement("I2-8-list-files")
async def test_the_list_of_files_goes_on_where_the_last_one_ended(serve: Serve) -> None:
    async with serve() as served:
        store = await served.one.store()
        added = [(await served.one.add(f"{name}.txt", f"text {name}", store))[1] for name in "abc"]
        first = json.loads((await served.one.call("list_files", limit=2)).output)
        rest = json.loads((await served.one.call("list_files", after=added[1])).output)
        unknown = await served.one.call("list_files", after="file-x")
    assert first == {
        "files": [
            {"file": f"{name}.txt", "file_id": file, "bytes": 6, "source": "uploaded", "vector_store_ids": [store]}
            for name, file in zip("ab", added, strict=False)
        ],
        "total": 3,
        "skipped": [],
    }
    assert [item["file"] for item in rest["files"]] == ["c.txt"]
    assert unknown.output == "no file 'file-x'"


async def test_searching_goes_on_while_files_come_in(serve: Serve) -> None:
    async with serve() as served:
        store, _ = await served.one.add("first.txt", "river zero")

        async def add(number: int) -> None:
            file = await served.one.upload(f"{number}.txt", f"river {number}")
            await served.one.http.post(f"/v1/vector_stores/{store}/files", json={"file_id": file})
            await served.one.read(store, file)
            found = await served.one.found(f"river {number}", max_results=50)
            assert f"{number}.txt" in {item["file"] for item in found}

        await asyncio.gather(*(add(number) for number in range(12)))
        assert len(await served.one.found("river", max_results=50)) == 13


@pytest.mark.requirement("I2-8-collectors")
async def test_the_metrics_say_what_is_there_and_how_searches_went(serve: Serve) -> None:
    async with serve(run={"process": True}) as served:
        await served.one.add("otters.md", OTTERS)
        await served.one.found("otters")
        await served.one.found("nothing like this")
        await served.one.call("file_search", query="x", vector_store_ids=["vs_x"])
        # The provider's process sends its metrics a moment after a call.
        while "file_search_search_seconds_count 3.0" not in (page := (await served.one.http.get("/metrics")).text):  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
    for line in (
        'file_search_documents{source="uploaded"} 1.0',
        'file_search_documents{source="local"} 0.0',
        'file_search_chunks{source="uploaded"} 2.0',
        'file_search_searches_total{outcome="found"} 1.0',
        'file_search_searches_total{outcome="nothing"} 1.0',
        'file_search_searches_total{outcome="failed"} 1.0',
        f"file_search_ingested_bytes_total {len(OTTERS)}.0",
    ):
        assert line in page.splitlines()
