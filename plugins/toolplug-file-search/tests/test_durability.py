"""What was acknowledged is there after any end, and nothing is there by halves."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from asyncio import to_thread
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from toolplug import open_host
from toolplug.errors import ConfigError

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]

CHILD = Path(__file__).with_name("killed_child.py")
INDEX = Path(".toolplug") / "providers" / "file_search" / "index.db"


@pytest.mark.process
@pytest.mark.parametrize(("moment", "survives"), [(1, False), (2, False), (3, False), (4, True)])
async def test_a_kill_in_the_middle_of_an_ingest_leaves_all_of_it_or_nothing(
    serve: Serve, tmp_path: Path, moment: int, survives: bool
) -> None:
    text = "river " * 50_000
    async with serve() as served:
        files = [await served.one.upload(f"{number}.txt", text) for number in range(2)]
    command = [sys.executable, str(CHILD), str(tmp_path / INDEX), *files, str(moment)]
    child = await to_thread(subprocess.run, command, check=False, timeout=150)
    assert child.returncode == (0 if survives else -signal.SIGKILL)
    async with serve() as served:
        assert (len(await served.one.found("river")) > 0) is survives
        assert len((await served.one.http.get("/v1/vector_stores")).json()["data"]) == int(survives)
        assert len((await served.one.http.get("/v1/files")).json()["data"]) == 2
        assert (served.metric("file_search_documents", source="uploaded") == 2) is survives
        store = await served.one.store(file_ids=files)
        assert len(await served.one.found("river", vector_store_ids=[store])) == 5


async def test_a_reload_keeps_everything(serve: Serve) -> None:
    async with serve() as served:
        await served.one.add("a.txt", "river")
    for _ in range(2):
        async with serve() as served:
            assert len(await served.one.found("river")) == 1


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


@pytest.mark.slow
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
