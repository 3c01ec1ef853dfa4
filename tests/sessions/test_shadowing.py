"""A session's tools beside those of the rest of the host: names that are taken, and tools before any registration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.plain_tools import plain_tool
from tests.sessions.fixtures import (
    T1,
    ArrangedNeighbours,
    added,
    call,
    definition,
    listed,
    modified,
    names,
    registration,
    serving,
)

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import wire_name
from toolplug.errors import ApiError
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.live import LiveCatalog
from toolplug.execution.run import UnknownCalls
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.tools.negotiation import RefusedTool

pytestmark = pytest.mark.anyio

COUNTERS = UnknownCalls(CallAccounting().counters("_unknown", "_unknown"))


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    return (await sessions.create(T1)).session


@pytest.mark.requirement("C-6-no-shadow", "C-1-session-shadow", "DYN-OQ-1", "DYN-AC-7")
@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("web_search", "provider 'web'"),
        ("web.search", "the toolset of the prefix 'web'"),
        ("web.anything.at.all", "the toolset of the prefix 'web'"),
    ],
)
async def test_a_name_of_the_host_is_refused(
    session: Session, neighbours: ArrangedNeighbours, name: str, owner: str
) -> None:
    neighbours.names["web_search"] = "provider 'web'"
    neighbours.prefixes.add("web")
    registered = await session.register(registration("a", name))
    why = f"the name belongs to {owner}; a session's tools need names of their own"
    assert registered.names == ("a",)
    assert registered.failed == (RefusedTool(name, why, True),)
    with pytest.raises(ApiError) as refusal:
        await session.update(added("b", name), "test")
    assert (refusal.value.code, refusal.value.param) == ("invalid_tool", "toolUpdates.added[1]")
    assert names(session) == ["a"]


@pytest.mark.requirement("C-1-session-shadow")
async def test_a_dotted_name_under_no_ones_prefix_is_taken(session: Session, neighbours: ArrangedNeighbours) -> None:
    neighbours.prefixes.add("web")
    registered = await session.register(registration("page.draw", "webs.search", "web"))
    assert registered.names == ("page.draw", "webs.search", "web")


@pytest.mark.requirement("DYN-OQ-1")
@pytest.mark.parametrize(("first", "second"), [("page.draw", "page__draw"), ("a/b", wire_name("a/b"))])
async def test_two_tools_that_a_model_could_not_tell_apart_are_not_both_taken(
    session: Session, first: str, second: str
) -> None:
    met = wire_name(first)
    for names_in_order in ((first, second), (second, first)):
        taken, lost = names_in_order
        registered = await session.register(registration(*names_in_order))
        assert registered.names == (taken,)
        assert registered.failed == (RefusedTool(lost, f"{met!r} stands for {taken!r} in a model's calls", True),)
        with pytest.raises(ApiError, match="stands for"):
            await session.update(added(lost), "test")
        await session.register(registration())


async def test_the_wire_name_of_a_hosts_tool_is_taken_too(session: Session, neighbours: ArrangedNeighbours) -> None:
    neighbours.names["page__draw"] = "provider 'page'"
    assert (await session.register(registration("a", "page.draw"))).failed[0].name == "page.draw"


@pytest.mark.requirement("C-6-late-provider", "DYN-OQ-1")
async def test_a_provider_that_comes_later_hides_the_sessions_tool_until_it_goes(
    session: Session, neighbours: ArrangedNeighbours
) -> None:
    await session.register(registration("a", "search"))
    neighbours.names["search"] = "provider 'web'"
    assert listed(session) == {"a": (True, None), "search": (False, "shadowed")}
    assert session.revision == 1
    await session.update(added("b"), "the rest goes on")
    with pytest.raises(ApiError):
        await session.update(modified("search", "New."), "test")
    del neighbours.names["search"]
    assert listed(session) == {"a": (True, None), "search": (True, None), "b": (True, None)}


@pytest.mark.requirement("C-6-default-toolset", "DYN-compat-default", "DYN-compat-registered", "I3-1-default-follows")
async def test_the_default_tools_are_there_until_the_plugin_registers_and_never_after(
    session: Session, neighbours: ArrangedNeighbours
) -> None:
    default = LiveCatalog(COUNTERS, Catalog([plain_tool("search")]))
    neighbours.default = default
    executor = session.executor
    heard: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    executor.subscribe(lambda diff: heard.append((diff.added, diff.removed)))
    assert list(executor.catalog) == list(session.executor.catalog) == ["search"]
    assert listed(session) == {"search": (True, None)}
    default.publish(Catalog([plain_tool("search"), plain_tool("fetch")]))
    assert list(executor.catalog) == ["search", "fetch"]
    await session.register(registration("a"))
    assert list(executor.catalog) == list(session.executor.catalog) == ["a"]
    assert listed(session) == {"a": (True, None)}
    default.publish(Catalog([plain_tool("more")]))
    assert list(executor.catalog) == ["a"]
    await session.register(registration())
    assert list(executor.catalog) == []
    assert heard == [(("fetch",), ()), (("a",), ("search", "fetch")), ((), ("a",))]


@pytest.mark.requirement("DYN-compat-default")
async def test_a_session_without_registration_and_default_tools_shows_none(session: Session) -> None:
    assert list(session.executor.catalog) == []
    assert listed(session) == {}


async def test_a_tool_is_called_by_its_wire_name_too(session: Session) -> None:
    await session.register(replace(registration(), tools=[definition("page.draw")]))
    async with serving(session, lambda request: request["tool"]):
        assert (await call(session, "page__draw")).output == "page.draw"
        assert (await call(session, "page.draw")).output == "page.draw"
