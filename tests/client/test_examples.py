"""The example applications run as they stand: two kinds side by side, with tools of the same names."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.client.fixtures import QUICK
from tests.client.scripted_host import WAIT_S
from tests.http.served import served
from tests.requirement_table import ROOT

from toolplug import open_host
from toolplug.client import Snapshot, ToolsChanged, watch
from toolplug.client.events import Change
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
def url() -> Iterator[str]:
    host = open_host({"store": "memory://", "providers": {}}, environ={})
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}"


class Session:
    """One application's session, as a model's client sees it."""

    def __init__(self, client: AsyncClient, code: str) -> None:
        self.code = code
        self._client = client

    async def tools(self) -> set[str]:
        listed = (await self._client.get("/v1/tools", params={"session": self.code})).json()["tools"]
        return {tool["function"]["name"] for tool in listed}

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """What the call gives: the value, or the text where there is no other."""
        body = {"tool": name, "arguments": arguments}
        answer = (await self._client.post(f"/api/sessions/{self.code}/tool-calls", json=body)).json()
        return answer.get("structured", answer["output"])

    async def metadata(self) -> dict[str, Any]:
        return (await self._client.get(f"/api/sessions/{self.code}/metadata")).json()


@asynccontextmanager
async def running(example: str, url: str, client: AsyncClient) -> AsyncIterator[Session]:
    """The example in a process of its own, until it is interrupted."""
    command = (sys.executable, str(ROOT / "examples" / f"{example}.py"), url)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            printed = (await process.stdout.readline()).decode().split()
        assert printed[0] == "session"
        yield Session(client, printed[1])
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(WAIT_S):
            assert await process.wait() == 0


@pytest.mark.requirement("I3-7-side-by-side", "DYN-AC-4", "DYN-US-per-app", "DYN-AC-10")
async def test_two_kinds_of_application_lend_tools_of_the_same_names_side_by_side(url: str) -> None:
    async with (
        AsyncClient(base_url=url, timeout=WAIT_S) as client,
        running("data_analysis_app", url, client) as table,
        running("messaging_app", url, client) as chat,
    ):
        assert await table.tools() == {"add", "clear", "describe", "search"}
        assert await chat.tools() == {"add", "describe", "search", "open_thread"}
        assert [(await each.metadata())["pluginType"] for each in (table, chat)] == ["codap", "slack"]
        added = await asyncio.gather(
            table.call("add", rows=[{"name": "otter", "value": 3}, {"name": "seal", "value": 5}]),
            chat.call("add", text="an otter came by"),
        )
        assert added == [2, {"number": 1, "text": "an otter came by", "thread": None}]
        assert [await each.call("describe") for each in (table, chat)] == ["a table of 2 rows", "a chat of 1 messages"]
        assert await table.call("search", text="otter") == [{"name": "otter", "value": 3.0}]
        assert await chat.call("search", text="otter") == [added[1]]
        assert "invalid arguments" in await table.call("add", text="an otter came by")


class Followed:
    """What a watcher knows of a session: its tools as of now, and why they changed."""

    def __init__(self, changes: AsyncGenerator[Change]) -> None:
        self.reasons: list[str] = []
        self._changes = changes
        self._snapshot: Snapshot | None = None

    async def until_tool(self, name: str, *, is_there: bool) -> None:
        """Read on until a tool has come, or has gone."""
        while self._snapshot is None or (name in {tool.name for tool in self._snapshot.tools}) is not is_there:
            async with asyncio.timeout(WAIT_S):
                change = await anext(self._changes)
            if isinstance(change, Snapshot):
                self._snapshot = change
                continue
            assert self._snapshot is not None
            self._snapshot = self._snapshot.after(change)
            if isinstance(change, ToolsChanged):
                self.reasons.append(change.reason)


@pytest.mark.requirement("DYN-UX-live", "DYN-AC-6", "I2-10-examples-run")
async def test_the_tools_of_an_application_follow_its_state(url: str) -> None:
    async with (
        AsyncClient(base_url=url, timeout=WAIT_S) as client,
        running("data_analysis_app", url, client) as table,
        aclosing(watch(url, table.code, backoff=QUICK)) as changes,
    ):
        followed = Followed(changes)
        await followed.until_tool("summarize", is_there=False)
        await table.call("add", rows=[{"name": "otter", "value": 3}, {"name": "otter", "value": 5}])
        await followed.until_tool("summarize", is_there=True)
        assert await table.call("summarize") == {"count": 2, "mean": 4.0, "highest": 5.0}
        assert await table.call("summarize", name="seal") == "no row is called 'seal'"
        await table.call("clear")
        await followed.until_tool("summarize", is_there=False)
        assert followed.reasons == ["rows were added", "the table was emptied"]


@pytest.mark.requirement("DYN-UX-live", "I2-10-examples-run")
async def test_a_tool_is_there_while_its_thread_is_open(url: str) -> None:
    async with (
        AsyncClient(base_url=url, timeout=WAIT_S) as client,
        running("messaging_app", url, client) as chat,
        aclosing(watch(url, chat.code, backoff=QUICK)) as changes,
    ):
        followed = Followed(changes)
        await chat.call("add", text="hello")
        await chat.call("open_thread", number=1)
        await followed.until_tool("reply", is_there=True)
        assert (await chat.call("reply", text="hi"))["thread"] == 1
        assert await chat.call("open_thread", number=7) == "there is no message 7"
        await chat.call("open_thread")
        await followed.until_tool("reply", is_there=False)
        assert "reply" not in await chat.tools()
