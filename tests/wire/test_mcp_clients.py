"""MCP over HTTP with the SDK's own client of either era, each of whose requests may reach another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult, ToolListChangedNotification
from tests.wire.answers import call
from tests.wire.application import Application, application
from tests.wire.callers import new_name
from tests.wire.test_registration import created, tool

pytestmark = [
    pytest.mark.wire,
    pytest.mark.anyio,
    pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"]),
    pytest.mark.requirement("I17-6-wire", "I17-2-mcp"),
]

WAIT_S = 30
Opened = Callable[..., AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def connected(http: httpx2.AsyncClient, era: str, path: str = "/mcp", **options: Any) -> AsyncIterator[Client]:
    """The SDK's client of this era."""
    mode = "legacy" if era == "2025-11-25" else "auto"
    async with asyncio.timeout(WAIT_S):
        transport = streamable_http_client(f"{http.base_url}".rstrip("/") + path, http_client=http)
        async with Client(transport, mode=mode, cache=None, **options) as client:
            assert client.protocol_version == era
            yield client


def text_of(result: Any) -> str:
    """The text of a result."""
    return result.content[0].text


async def names(client: Client) -> list[str]:
    """The names of the tools."""
    return [each.name for each in (await client.list_tools()).tools]


async def test_tools_are_listed_and_called(client: httpx2.AsyncClient, era: str) -> None:
    async with connected(client, era) as mcp:
        for _ in range(3):
            assert (await names(mcp))[:3] == ["hello", "echo", "plus"]
            assert text_of(await mcp.call_tool("hello", {"name": "Ada"})) == "Hello, Ada!"
            added = await mcp.call_tool("plus", {"a": 1, "b": 2})
            assert (text_of(added), added.is_error) == ("3", False)


async def test_an_agents_tools_are_listed_and_called(client: httpx2.AsyncClient, era: str) -> None:
    async with connected(client, era, "/mcp?agent=greeter") as mcp:
        for _ in range(3):
            assert (await names(mcp))[0] == "greet__hello"
            assert text_of(await mcp.call_tool("greet__hello", {})) == "Hello, world!"


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("fails", {"why": "rain"}, "rain"),
        ("panics", {"secret": "s"}, 'internal error: builtin tool "panics" panicked'),
        ("plus", {"a": 1}, 'invalid arguments for tool "plus"'),
        ("never", {}, 'tool "never" is not allowed'),
        ("waits", {"seconds": 9}, 'tool "waits" timed out'),
    ],
)
async def test_a_call_that_fails_says_why(
    client: httpx2.AsyncClient, era: str, name: str, arguments: dict[str, Any], text: str
) -> None:
    async with connected(client, era) as mcp:
        result = await mcp.call_tool(name, arguments)
        assert (result.is_error, text_of(result).startswith(text)) == (True, True)


async def test_an_unknown_tool_is_an_error(client: httpx2.AsyncClient, era: str) -> None:
    async with connected(client, era) as mcp:
        for name in ("nothing", "unseen"):
            with pytest.raises(MCPError, match=f'no builtin provider handles tool "{name}"'):
                await mcp.call_tool(name, {})


async def test_progress_is_told(client: httpx2.AsyncClient, era: str) -> None:
    told: list[float] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async with connected(client, era) as mcp:
        for _ in range(3):
            told.clear()
            assert text_of(await mcp.call_tool("reports", {"upto": 3}, progress_callback=tell)) == "3"
            assert told == [1, 2, 3]


async def test_pictures_are_content(client: httpx2.AsyncClient, era: str) -> None:
    async with connected(client, era) as mcp:
        drawn = await mcp.call_tool("draws", {})
        assert {each.type for each in drawn.content} == {"text", "image"}


async def test_prompts_and_resources_are_listed_and_read(client: httpx2.AsyncClient, era: str) -> None:
    async with connected(client, era) as mcp:
        for _ in range(3):
            assert "greeting" in [each.name for each in (await mcp.list_prompts()).prompts]
            prompt = await mcp.get_prompt("greeting", {"name": "Ada"})
            assert prompt.messages[0].content.text == "Say hello to Ada."
            assert "wire://drawer" in [str(each.uri) for each in (await mcp.list_resources()).resources]
            assert (await mcp.read_resource("wire://drawer")).contents[0].text == "a pen"


async def test_an_unknown_prompt_or_resource_is_an_error(client: httpx2.AsyncClient, era: str) -> None:
    async with connected(client, era) as mcp:
        with pytest.raises(MCPError):
            await mcp.get_prompt("nothing", {})
        with pytest.raises(MCPError):
            await mcp.read_resource("wire://nothing")


async def test_who_may_decide_is_asked_for_an_approval(client: httpx2.AsyncClient, era: str) -> None:
    for action in ("accept", "decline"):
        asked: list[str] = []

        async def answer(context: ClientRequestContext, params: ElicitRequestParams, action: str = action) -> Any:
            asked.append(params.message)  # noqa: B023  called before the next round
            return ElicitResult.model_validate({"action": action})

        async with connected(client, era, elicitation_callback=answer) as mcp:
            for _ in range(3):
                name = new_name("elicited")
                result = await mcp.call_tool("first", {"name": name})
                assert result.is_error is (action == "decline")
                assert name in asked.pop()
                assert (await call(client, "times", name=name))["output"] == ("2" if action == "accept" else "1")


@asynccontextmanager
async def following(http: httpx2.AsyncClient, era: str, path: str) -> AsyncIterator[Callable[[], Awaitable[list[str]]]]:
    """A client that hears of changes as its era does: each `await` gives the names after the next one."""
    if era == "2026-07-28":
        async with connected(http, era, path) as mcp, mcp.listen(tools_list_changed=True) as subscription:

            async def after_event() -> list[str]:
                assert await anext(subscription) == ToolsListChanged()
                return await names(mcp)

            yield after_event
        return
    heard = asyncio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            heard.set()

    async with connected(http, era, path, message_handler=hear) as mcp:
        await names(mcp)

        async def after_notification() -> list[str]:
            await heard.wait()
            heard.clear()
            return await names(mcp)

        yield after_notification


async def test_a_sessions_tools_are_listed_and_called(client: httpx2.AsyncClient, era: str) -> None:
    async with (
        application(client, lambda request: request["arguments"]) as app,
        connected(client, era, f"{app.place}/mcp") as mcp,
    ):
        for number in range(4):
            lent = [name for name in await names(mcp) if name == "add" or name[-1].isdigit()]
            assert lent == ["add", *(f"t{earlier}" for earlier in range(number))]
            result = await mcp.call_tool("add", {"n": number})
            assert result.structured_content == {"n": number}
            await app.post("update-tools", {"toolUpdates": {"added": [tool(f"t{number}")]}, "reason": ""})


async def test_clients_are_told_of_each_revision_after_the_list_shows_it(client: httpx2.AsyncClient, era: str) -> None:
    app: Application = await created(client)
    await app.post("register-tools", {"tools": [tool("one")]})
    async with following(client, era, f"{app.place}/mcp") as after_change:
        for number in range(4):
            await app.post("update-tools", {"toolUpdates": {"added": [tool(f"t{number}")]}, "reason": ""})
            while f"t{number}" not in await after_change():
                pass
