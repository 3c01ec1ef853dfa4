"""The operator's own files: every tenant searches them, no request changes them, and the index follows the disk."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.errors import ConfigError

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.usefixtures("reading_once")]

IN_HOST: Any = {"run": {"process": False}}
"""For what reads metrics at once: those of a process of its own follow later."""

Serve = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "water.md").write_text("# River\n\nThe river runs.\n")
    return folder


@pytest.mark.requirement("I2-8-docs-served")
async def test_every_tenant_searches_them_and_no_request_reaches_them(serve: Serve, docs: Path) -> None:
    async with serve(paths=[str(docs)]) as served:
        for tenant in (served.one, served.two):
            [found] = await tenant.found("river")
            assert found["file"] == f"{docs.as_posix()}/water.md"
            [listed] = json.loads((await tenant.call("list_files")).output)["files"]
            assert (listed["source"], listed["vector_store_ids"]) == ("local", [])
            assert (await tenant.http.get("/v1/files")).json()["data"] == []
            for method in ("GET", "DELETE"):
                assert (await tenant.http.request(method, f"/v1/files/{found['file_id']}")).status_code == 404


async def test_a_search_of_vector_stores_leaves_them_out(serve: Serve, docs: Path) -> None:
    async with serve(paths=[str(docs)]) as served:
        store, _ = await served.one.add("mine.txt", "my river")
        assert [item["file"] for item in await served.one.found("river", vector_store_ids=[store])] == ["mine.txt"]
        assert len(await served.one.found("river")) == 2


async def test_what_changes_on_disk_changes_in_the_index(serve: Serve, docs: Path) -> None:
    async with serve(paths=[str(docs)], refresh=0) as served:
        assert len(await served.one.found("river")) == 1
        (docs / "water.md").write_text("# Lake\n\nThe lake is still, still.\n")
        (docs / "sea.txt").write_text("The sea is salty.\n")
        assert [len(await served.one.found(word)) for word in ("river", "lake", "sea")] == [0, 1, 1]
        (docs / "sea.txt").unlink()
        assert await served.one.found("sea") == []


async def test_an_unchanged_file_is_not_read_again(serve: Serve, docs: Path) -> None:
    async with serve(**IN_HOST, paths=[str(docs)], refresh=0) as served:
        await served.one.found("river")
        size = served.metric("file_search_ingested_bytes_total")
        (docs / "water.md").touch()
        await served.one.found("river")
        assert served.metric("file_search_ingested_bytes_total") == size
    async with serve(**IN_HOST, paths=[str(docs)]) as served:
        assert len(await served.one.found("river")) == 1
        assert served.metric("file_search_ingested_bytes_total") == 0


async def test_another_chunk_size_cuts_every_file_again(serve: Serve, docs: Path) -> None:
    (docs / "long.txt").write_text("river and lake. " * 100)
    async with serve(**IN_HOST, paths=[str(docs)]) as served:
        assert await served.one.found("lake")
        few = served.metric("file_search_chunks", source="local")
    async with serve(**IN_HOST, paths=[str(docs)], chunk_size=200, overlap=0) as served:
        assert await served.one.found("lake")
        assert served.metric("file_search_chunks", source="local") > few


async def test_a_path_that_leaves_the_configuration_leaves_the_index(serve: Serve, docs: Path) -> None:
    async with serve(**IN_HOST, paths=[str(docs)]) as served:
        assert len(await served.one.found("river")) == 1
    async with serve(**IN_HOST) as served:
        assert await served.one.found("river") == []
        assert served.metric("file_search_documents", source="local") == 0


async def test_a_file_that_cannot_be_read_is_named_once_and_the_others_are_searched(
    serve: Serve, docs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (docs / "bad.md").write_bytes(b"\x00\xff")
    (docs / "big.md").write_text("x" * 200)
    (docs / os.fsdecode(b"c\xff.md")).write_text("river")
    with caplog.at_level(logging.WARNING, "toolplug.providers.file_search"):
        async with serve(paths=[str(docs)], refresh=0, max_file_bytes=100) as served:
            for _ in range(3):
                assert len(await served.one.found("river")) == 1
    said = [record.getMessage() for record in caplog.records if "it is not searched" in record.getMessage()]
    assert len(said) == 3
    assert "bad.md' is not text" in said[0]
    assert "big.md' has 200 bytes, max_file_bytes allows 100" in said[1]
    assert "cannot be shown" in said[2]


async def test_while_changes_cannot_be_written_the_old_texts_are_searched(
    serve: Serve, docs: Path, tmp_path: Path
) -> None:
    async with serve(paths=[str(docs)], refresh=0) as served:
        assert len(await served.one.found("river")) == 1
        (docs / "water.md").write_text("# Lake\n\nThe lake is still, still.\n")
        other = sqlite3.connect(tmp_path / ".toolplug" / "providers" / "file_search" / "index.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert len(await served.one.found("river")) == 1
        other.execute("ROLLBACK")
        other.close()
        assert [len(await served.one.found(word)) for word in ("river", "lake")] == [0, 1]


@pytest.mark.parametrize(
    ("settings", "path", "says"),
    [
        ({"paths": ["./nowhere"]}, "providers.file_search.paths", "/nowhere' does not exist"),
        ({"overlap": 800}, "providers.file_search", "overlap (800) is more than half of chunk_size (1500)"),
        ({"chunk_size": 10}, "providers.file_search.chunk_size", "100"),
        ({"chunks": 10}, "providers.file_search.chunks", "chunk_size"),
    ],
)
async def test_wrong_settings_stop_the_start_and_are_named(
    tmp_path: Path, settings: dict[str, object], path: str, says: str
) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text(json.dumps({"providers": {"file_search": {"enabled": True, **settings}}}))
    with pytest.raises(ConfigError) as caught:
        async with open_host(file):
            pass
    [problem] = caught.value.problems
    assert problem.path.startswith(path)
    assert says in str(problem)


@pytest.mark.requirement("I2-8-docs-served")
async def test_relative_paths_start_at_the_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "notes").mkdir()
    (tmp_path / "etc" / "notes" / "otter.md").write_text("# Otters\n\nAn otter swims.\n")
    config = tmp_path / "etc" / "providers.yaml"
    config.write_text("providers: {file_search: {enabled: true, paths: [notes]}}\nstore: memory://\n")
    me = Principal(scopes=frozenset({"tools:call"}))
    async with open_host(config) as host:
        call = ToolCall("1", "file_search", {"query": "otter"})
        found = await host.executor_for(me).execute(call, CallContext(principal=me))
    assert [item["file"] for item in found.structured["results"]] == ["notes/otter.md"]
