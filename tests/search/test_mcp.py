"""Tool search for MCP clients: the SDK's own client, in both eras, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from tests.mcp.conftest import Opened, era, host, opened, settings, url
from tests.search.many_provider import name_of

__all__ = ["era", "host", "opened", "url"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.mcp,
    pytest.mark.usefixtures("many_package"),
    pytest.mark.requirement("C-9-tool-search"),
]

TWO = ["search_tools", "call_tool"]
WAIT_S = 20.0
RULES = {name_of(0): {"offer": "always"}, name_of(9): "deny"}
MANY = settings(providers={"many": {"enabled": True, "offer": "search", "count": 100, "tools": RULES}})


@pytest.fixture
def speaking_package(many_package: None) -> None:
    """The provider of these tests in place of that of the other tests of MCP."""


@pytest.fixture
def configured() -> dict[str, object]:
    return MANY


async def names(client: Any) -> list[str]:
    """The names in `tools/list`."""
    return [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]


async def test_found_tools_are_listed_in_a_session_and_nowhere_else(opened: Opened, era: str) -> None:
    told = asyncio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with opened(message_handler=hear) as client, opened() as other:
        assert await names(client) == [name_of(0), *TWO]
        found: Any = await client.call_tool("search_tools", {"query": "merge the branch", "limit": 1})
        assert [tool["name"] for tool in found.structured_content["tools"]] == [name_of(37)]
        if era == "2025-11-25":
            await asyncio.wait_for(told.wait(), WAIT_S)
            assert await names(client) == [name_of(0), *TWO, name_of(37)]
        else:
            assert await names(client) == [name_of(0), *TWO]
        assert await names(other) == [name_of(0), *TWO]


async def test_what_was_found_is_called_by_either_way(opened: Opened) -> None:
    async with opened() as client:
        direct: Any = await client.call_tool(name_of(37), {"id": "7"})
        through: Any = await client.call_tool("call_tool", {"name": name_of(37), "arguments": {"id": "7"}})
    assert through.structured_content == direct.structured_content == {"did": name_of(37), "of": "alice", "id": "7"}
    assert (through.content, through.meta) == (direct.content, direct.meta)


async def test_refusals_of_a_call_are_results_that_the_model_reads(opened: Opened) -> None:
    async with opened() as client:
        answers: list[Any] = [
            await client.call_tool("call_tool", {"name": name, "arguments": {}})
            for name in ("unheard_of", name_of(9), name_of(37))
        ]
    assert [answer.is_error for answer in answers] == [True] * 3
    assert [answer.meta["toolplug/status"] for answer in answers] == ["unknown_tool", "denied", "invalid_arguments"]
    assert f"The parameters of {name_of(37)}: {{" in answers[2].content[0].text
