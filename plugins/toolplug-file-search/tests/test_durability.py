"""What was acknowledged is there after any end, and nothing is there by halves."""

from __future__ import annotations

import logging
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
from anyio import to_thread

from toolplug import open_host
from toolplug.errors import ConfigError
from toolplug_file_search.documents.preparation import Cutting
from toolplug_file_search.documents.reader import DocumentReader
from toolplug_file_search.ingest.background import BackgroundIngest
from toolplug_file_search.storage.database import Database, IndexUnavailable

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]

CHILD = Path(__file__).with_name("killed_child.py")
INDEX = Path(".toolplug") / "providers" / "file_search" / "index.db"

EARLY = "DROP TRIGGER chunk_gone; DROP TABLE gone; DROP TABLE vectors; DROP TABLE facts;"
LATE = "CREATE VIRTUAL TABLE vocabulary_1 USING fts5vocab (passages_1, row);"
"""Both were version 3: the tables as search by meaning found them, and as it left them."""


@pytest.mark.requirement("I2-8-ingest-kill")
@pytest.mark.judge
@pytest.mark.parametrize(("moment", "whole"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
async def test_a_kill_in_the_middle_of_an_ingest_leaves_whole_files_and_the_rest_is_read_later(
    serve: Serve, tmp_path: Path, moment: int, whole: int
) -> None:
    async with serve() as served:
        files = [await served.one.upload(f"{number}.txt", f"river {number} " * 2_000) for number in range(2)]
    index = tmp_path / INDEX
    with sqlite3.connect(index) as connection:  # as a request leaves them that was answered just before
        corpus = connection.execute("SELECT number FROM corpora").fetchone()[0]
        connection.execute(
            "INSERT INTO stores (id, corpus, name, metadata, created_at) VALUES ('vs_1', ?, '', '{}', 1)", [corpus]
        )
        for file in files:
            connection.execute(
                "INSERT INTO members (store_id, file_id, attributes, created_at) VALUES ('vs_1', ?, '{}', 1)", [file]
            )
        connection.execute("UPDATE files SET status = 'waiting'")
    connection.close()
    command = [sys.executable, str(CHILD), str(index), str(moment)]
    child = await to_thread.run_sync(partial(subprocess.run, command, check=False, timeout=150))
    assert child.returncode == (0 if whole == 2 else -signal.SIGKILL)
    with sqlite3.connect(index) as connection:
        states = [row[0] for row in connection.execute("SELECT status FROM files ORDER BY place")]
        passages = connection.execute("SELECT count(DISTINCT file_id) FROM chunks").fetchone()[0]
    connection.close()
    assert states == ["searchable"] * whole + ["waiting"] * (2 - whole)
    assert passages == whole
    async with serve() as served:
        for number, file in enumerate(files):
            assert (await served.one.read("vs_1", file))["status"] == "completed"
            [best] = await served.one.found(f"river {number}", max_results=1)
            assert best["file"] == f"{number}.txt"


@pytest.mark.process
@pytest.mark.parametrize("early", [True, False])
async def test_an_index_of_version_3_is_brought_up_to_date_in_both_its_shapes(
    serve: Serve, tmp_path: Path, early: bool
) -> None:
    async with serve() as served:
        store, file = await served.one.add("a.txt", "the old river, the old mill")
        await served.one.add("b.txt", "a river", store)
    tokens = "SELECT corpus, token, passages FROM tokens ORDER BY token"
    with closing(sqlite3.connect(tmp_path / INDEX, isolation_level=None)) as connection:
        before = connection.execute(tokens).fetchall()
        assert [row[1:] for row in before if row[1] in ("river", "old")] == [("old", 1), ("river", 2)]
        connection.executescript(
            "DROP TABLE tokens; ALTER TABLE stores DROP COLUMN description; PRAGMA user_version = 3;"
            "ALTER TABLE files DROP COLUMN tries; ALTER TABLE files DROP COLUMN left_out;" + (EARLY if early else LATE)
        )
    async with serve() as served:
        assert (await served.one.http.get(f"/v1/vector_stores/{store}")).json()["description"] == ""
        assert [item["file"] for item in await served.one.found("old")] == ["a.txt"]
        await served.one.add("c.txt", "a new river", store)
        await served.one.http.delete(f"/v1/files/{file}")
        assert [item["file"] for item in await served.one.found("river")] == ["b.txt", "c.txt"]
    with closing(sqlite3.connect(tmp_path / INDEX)) as connection:
        after = {token: passages for _, token, passages in connection.execute(tokens)}
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    assert after == {"a": 2, "b": 1, "c": 1, "new": 1, "river": 2}
    assert {"gone", "vectors", "facts", "chunk_gone"} <= tables
    assert "vocabulary_1" not in tables


@pytest.mark.process
def test_a_cause_that_stops_the_ingest_is_logged_once_and_its_end_with_the_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    causes = iter([*[IndexUnavailable("disk full")] * 3, IndexUnavailable("locked"), None])
    turn = Semaphore(0)

    def after(stopped: Callable[[], bool]) -> None:
        cause = next(causes, None)
        turn.release()
        if cause is not None:
            raise cause

    reader = DocumentReader(Cutting(size=1500, overlap=200), logging.getLogger("reader"))
    with closing(Database(tmp_path / "index.db")) as database:
        ingest = BackgroundIngest(database, reader, logging.getLogger("ingest"), after)
        ingest.start()
        for _ in range(5):
            turn.acquire()
            ingest.wake()
        ingest.stop()
    assert [record.getMessage() for record in caplog.records if record.name == "ingest"] == [
        "the index cannot take in files now: disk full; retrying until it works",
        "the index cannot take in files now: locked; retrying until it works",
        "files are taken in again, after 4 failed attempts",
    ]


@pytest.mark.process
async def test_a_reload_keeps_everything(serve: Serve) -> None:
    async with serve() as served:
        await served.one.add("a.txt", "river")
    for _ in range(2):
        async with serve() as served:
            assert len(await served.one.found("river")) == 1


@pytest.mark.process
@pytest.mark.parametrize("damage", ["garbage", "newer", "foreign"])
async def test_an_index_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    index = tmp_path / INDEX
    index.parent.mkdir(parents=True)
    if damage == "garbage":
        index.write_bytes(b"no database at all" * 100)
    else:
        with sqlite3.connect(index) as connection:
            connection.execute("PRAGMA user_version = 99" if damage == "newer" else "CREATE TABLE t (x)")
        connection.close()
    before = index.read_bytes()
    config = tmp_path / "providers.yaml"
    config.write_text("providers: {file_search: {enabled: true}}")
    with pytest.raises(ConfigError, match=r"index\.db is not an index that can be used"):
        async with open_host(config):
            pass
    assert index.read_bytes() == before


@pytest.mark.process
async def test_a_locked_index_is_said_to_be_so(serve: Serve, tmp_path: Path) -> None:
    async with serve() as served:
        file = await served.one.upload("a.txt", "river")
        other = sqlite3.connect(tmp_path / INDEX, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answer = await served.one.http.post("/v1/vector_stores", json={"file_ids": [file]})
        other.execute("ROLLBACK")
        other.close()
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["code"]) == (503, "server_error", "index_unavailable")
        assert await served.one.store(file_ids=[file])
