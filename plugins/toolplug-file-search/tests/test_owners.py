"""A credential that names agents sees the files and vector stores of its own subject only."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from toolplug import CallContext, Host, Principal, ToolCall, open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("C-5-files-own-subject")]

INDEX = Path(".toolplug") / "providers" / "file_search" / "index.db"
VERSION_1 = Path(__file__).with_name("index_version_1.sql")


class Caller:
    """One credential: over HTTP, and as a host calls the tools for it."""

    def __init__(self, host: Host, name: str, agents: frozenset[str] | None) -> None:
        scopes = frozenset({"tools:call"})
        self._me = Principal(subject=name, tenant="t1", scopes=scopes, agents=agents)
        self._tools = host.executor_for(self._me, agent=None if agents is None else "reader")
        self._prefix = "" if agents is None else "files."
        self.http = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(create_app(host)),
            base_url="http://127.0.0.1",
            headers={"Authorization": f"Bearer key-{name}"},
        )

    async def add(self, name: str, content: str) -> tuple[str, str]:
        """A new vector store and the file in it."""
        upload = await self.http.post(
            "/v1/files", files={"file": (name, content.encode())}, data={"purpose": "assistants"}
        )
        made = await self.http.post("/v1/vector_stores", json={"file_ids": [upload.json()["id"]]})
        store, file = made.json()["id"], upload.json()["id"]
        await self.read(store, file)
        return store, file

    async def read(self, store: str, file: str) -> None:
        """Wait until the file was read."""
        path = f"/v1/vector_stores/{store}/files/{file}"
        while (await self.http.get(path)).json()["status"] == "in_progress":  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)

    async def ids(self, path: str) -> set[str]:
        """The ids of a listing."""
        return {item["id"] for item in (await self.http.get(path)).json()["data"]}

    async def answer(self, tool: str, **arguments: object) -> str:
        call = ToolCall("c1", f"{self._prefix}{tool}", arguments)
        return (await self._tools.execute(call, CallContext(principal=self._me))).output

    async def found(self, query: str) -> set[str]:
        """The files of the passages."""
        return {item["file_id"] for item in json.loads(await self.answer("file_search", query=query))["results"]}

    async def listed(self) -> set[str]:
        """The files that `list_files` lists."""
        return {item["file_id"] for item in json.loads(await self.answer("list_files"))["files"]}


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[tuple[Caller, Caller]]:
    """alice, whose key names no agents, and bob of the same tenant, whose key names one."""
    keys = [
        {"key": "key-alice", "subject": "alice", "tenant": "t1"},
        {"key": "key-bob", "subject": "bob", "tenant": "t1", "agents": ["reader"]},
    ]
    (folder / "shared").mkdir(exist_ok=True)
    (folder / "shared" / "rules.txt").write_text("the river of the operator")
    (folder / "providers.yaml").write_text(
        json.dumps(
            {
                "providers": {"file_search": {"enabled": True, "paths": ["shared"]}},
                "toolsets": {"files": {"prefix": "files", "from": "provider:file_search"}},
                "agents": {"reader": {"toolsets": ["files"]}},
                "auth": {"api_keys": keys},
            }
        )
    )
    async with open_host(folder / "providers.yaml") as host:
        alice, bob = Caller(host, "alice", None), Caller(host, "bob", frozenset({"reader"}))
        async with alice.http, bob.http:
            yield alice, bob


async def test_it_lists_and_finds_its_own_files_and_the_operators(tmp_path: Path) -> None:
    async with opened(tmp_path) as (alice, bob):
        alices_store, alices_file = await alice.add("a.txt", "the river of alice")
        bobs_store, bobs_file = await bob.add("b.txt", "the river of bob")

        assert await bob.ids("/v1/files") == {bobs_file}
        assert await bob.ids("/v1/vector_stores") == {bobs_store}
        found = await bob.found("river")
        assert bobs_file in found
        assert alices_file not in found
        assert len(found) == 2
        assert await bob.listed() == found
        assert await alice.ids("/v1/files") == {alices_file, bobs_file}
        assert await alice.ids("/v1/vector_stores") == {alices_store, bobs_store}
        assert await alice.listed() == await alice.found("river") == found | {alices_file}


async def test_anothers_file_and_store_answer_like_those_that_are_not_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as (alice, bob):
        store, file = await alice.add("a.txt", "the river of alice")
        bobs_store, _ = await bob.add("b.txt", "the river of bob")

        asked = [
            ("GET", f"/v1/files/{file}", None),
            ("GET", f"/v1/files/{file}/content", None),
            ("DELETE", f"/v1/files/{file}", None),
            ("GET", f"/v1/vector_stores/{store}", None),
            ("GET", f"/v1/vector_stores/{store}/files", None),
            ("DELETE", f"/v1/vector_stores/{store}", None),
            ("POST", "/v1/vector_stores", {"file_ids": [file]}),
            ("POST", f"/v1/vector_stores/{bobs_store}/files", {"file_id": file}),
        ]
        statuses = [(await bob.http.request(method, path, json=body)).status_code for method, path, body in asked]
        assert statuses == [404] * len(asked)
        answer = await bob.answer("file_search", query="river", vector_store_ids=[store])
        assert answer == f"no vector store '{store}'"
        assert (await alice.http.get(f"/v1/files/{file}/content")).text == "the river of alice"


async def test_anothers_file_in_its_own_store_stays_hidden(tmp_path: Path) -> None:
    async with opened(tmp_path) as (alice, bob):
        _, alices_file = await alice.add("a.txt", "the river of alice")
        store, bobs_file = await bob.add("b.txt", "the river of bob")
        await alice.http.post(f"/v1/vector_stores/{store}/files", json={"file_id": alices_file})

        answer = await bob.answer("file_search", query="river", vector_store_ids=[store])
        assert {item["file_id"] for item in json.loads(answer)["results"]} == {bobs_file}
        assert await bob.ids(f"/v1/vector_stores/{store}/files") == {bobs_file}
        assert (await bob.http.get(f"/v1/vector_stores/{store}/files/{alices_file}")).status_code == 404


async def test_an_index_of_version_1_is_brought_up_to_date_and_its_files_have_no_owner(tmp_path: Path) -> None:
    (tmp_path / INDEX).parent.mkdir(parents=True)
    with sqlite3.connect(tmp_path / INDEX) as connection:
        connection.executescript(VERSION_1.read_text())
    connection.close()

    for _ in range(2):
        async with opened(tmp_path) as (alice, bob):
            while "file-old" not in await alice.found("old river"):  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.01)  # it is read again in the background
            assert "file-old" in await alice.ids("/v1/files")
            assert "file-old" not in await bob.found("old river")
            _, new = await bob.add("c.txt", "the river again")
            assert new in await bob.ids("/v1/files")
            assert "file-old" not in await bob.ids("/v1/files")
            assert await alice.ids("/v1/vector_stores") > await bob.ids("/v1/vector_stores")
