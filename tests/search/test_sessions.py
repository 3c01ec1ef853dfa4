"""Tool search where tools come and go: those of sessions, and those that are removed before or during a search."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.search.conftest import OpenMany
from tests.search.many_provider import name_of
from tests.sessions.fixtures import registration, removed

from toolplug import Host, Principal, ToolCall, ToolExecutor, ToolResult
from toolplug.parts.sessions.session import Session

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-9-tool-search")]

ALICE = Principal(subject="alice", tenant="t1", scopes=frozenset({"tools:call"}))
TWO = ["search_tools", "call_tool"]
CRM: dict[str, Any] = {
    "toolsets": {"crm": {"prefix": "crm", "from": "provider:many", "offer": "search"}},
    "agents": {"clerk": {"toolsets": ["crm"]}},
}
DRAWING = [f"draw_shape_{number}" for number in range(30)]


async def opened(host: Host, *names: str) -> tuple[Session, ToolExecutor]:
    """A session of Alice with tools of these names, and the tools of its clients."""
    session = (await host.sessions.create(ALICE)).session
    await session.register(registration(*names))
    return session, host.executor_for(ALICE, session=session.code)


def shown(tools: ToolExecutor) -> list[str]:
    """The names of the tools that a model sees."""
    return [tool.name for tool in tools.catalog.shown.definitions()]


async def searched(tools: ToolExecutor, query: str, limit: int = 1) -> list[str]:
    """The names that a search finds."""
    result = await tools.execute(ToolCall("s1", "search_tools", {"query": query, "limit": limit}))
    found: Any = result.structured
    return [tool["name"] for tool in found["tools"]]


async def called(tools: ToolExecutor, name: str) -> ToolResult:
    """The result of a call through `call_tool`."""
    return await tools.execute(ToolCall("c1", "call_tool", {"name": name, "arguments": {"id": "7"}}))


async def test_a_session_cannot_take_the_names_of_the_search(open_many: OpenMany) -> None:
    async with open_many() as host:
        session = (await host.sessions.create(ALICE)).session
        registered = await session.register(registration("draw", *TWO))
        tools = host.executor_for(ALICE, session=session.code)
        assert [(tool.name, tool.error) for tool in registered.failed] == [
            (name, "the name belongs to this host itself; a session's tools need names of their own") for name in TWO
        ]
        assert shown(tools) == ["draw", *TWO]


async def test_where_only_an_agent_has_deferred_tools_the_search_comes_before_tools_of_sessions(
    open_many: OpenMany,
) -> None:
    async with open_many({"offer": "always"}, **CRM) as host:
        session, tools = await opened(host, "draw", *TWO)
        clerk = host.executor_for(ALICE, agent="clerk", session=session.code)
        assert shown(tools)[-3:] == ["draw", *TWO]
        assert tools.catalog["search_tools"].definition.ref.source == "_session"
        assert shown(clerk) == ["draw", *TWO]
        assert await searched(clerk, "merge the branch") == [f"crm.{name_of(37)}".replace(".", "__")]


async def test_tools_of_sessions_are_deferred_where_the_configuration_says_so(open_many: OpenMany) -> None:
    async with open_many({"count": 1, "offer": "always"}, sessions={"offer": "search"}) as host:
        session, tools = await opened(host, *DRAWING)
        assert shown(tools) == [name_of(0), *TWO]
        assert await searched(tools, "draw shape 7") == ["draw_shape_7"]
        (offer,) = [
            setting.value
            for setting in host.explain("draw_shape_7", ALICE, session=session.code).settings
            if setting.name == "offer"
        ]
        assert offer.startswith("search (deferred, found by: draw, shape, 7")
        assert offer.endswith("1 of 31 tools are shown)")
        assert shown(host.executor_for(ALICE)) == [name_of(0)]
        await session.update(removed(*DRAWING[19:]), "fewer")
        assert shown(tools) == [name_of(0), *DRAWING[:19]]


async def test_a_tool_that_its_application_removes_after_the_search_is_unknown(open_many: OpenMany) -> None:
    async with open_many(sessions={"offer": "search"}) as host:
        session, tools = await opened(host, *DRAWING)
        assert await searched(tools, "draw shape 7") == ["draw_shape_7"]
        await session.update(removed("draw_shape_7"), "it is gone")
        result = await called(tools, "draw_shape_7")
        assert (result.status, result.output) == (
            "unknown_tool",
            'no builtin provider handles tool "draw_shape_7"',
        )
        assert "draw_shape_7" not in await searched(tools, "draw shape 7", limit=20)


async def test_a_tool_that_is_removed_during_a_search_is_not_in_its_result(open_many: OpenMany) -> None:
    async with open_many() as host:
        tools = host.executor_for(ALICE)
        given = {"query": "merge branch 37", "limit": 1}
        search = asyncio.create_task(tools.execute(ToolCall("s1", "search_tools", given)))
        await asyncio.sleep(0)
        host.registry.publish(host.registry.catalog.where(lambda tool: tool.definition.name != name_of(37)))
        found: Any = (await search).structured
    assert (found["tools"], found["hint"]) == (
        [],
        "the tools that have these words were removed during the search; search again",
    )


async def test_the_commonest_word_finds_the_tools_that_it_says_most_of(open_many: OpenMany) -> None:
    async with open_many({"extra": ["department_list"]}, sessions={"offer": "search"}) as host:
        _, tools = await opened(host, *DRAWING, "department")
        result = await tools.execute(ToolCall("s1", "search_tools", {"query": "departments", "limit": 3}))
        found: Any = result.structured
    assert [tool["name"] for tool in found["tools"]] == ["department", "department_list", name_of(0)]
    assert found["of"] == 132
