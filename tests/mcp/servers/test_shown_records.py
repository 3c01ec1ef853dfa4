"""What discovery finds, as executors list it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.mcp.servers.scripted import TIME, Harness, record, run, tool

from toolplug.catalog.catalog import CatalogDiff
from toolplug.parts.mcp.client.connection import BadAnswer, ConnectionFailed, ServerRefused
from toolplug.parts.mcp.discovery.record import NEVER, DiscoveryRecord, ListingFailed

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("DISC-undiscovered")
async def test_a_server_that_was_never_asked_lists_nothing(harness: Harness) -> None:
    tools = await harness.tools()
    tools.show(NEVER)
    assert list(tools.live.catalog) == []
    assert (await run(tools.live)).status == "unknown_tool"


async def test_a_record_without_news_changes_nothing(harness: Harness) -> None:
    tools = await harness.tools()
    before = tools.live.catalog["now"]
    heard: list[CatalogDiff] = []
    stop = tools.live.subscribe(heard.append)
    tools.show(await record(tool()))
    assert tools.live.catalog["now"] is before
    assert heard == []
    stop()


@pytest.mark.requirement("C-8-modified")
async def test_a_changed_definition_is_one_modified_tool_in_every_executor(harness: Harness) -> None:
    tools = await harness.tools(TIME, tool("now"), tool("then"))
    session = tools.per_session()
    heard: list[list[CatalogDiff]] = [[], [], []]
    stops = [
        executor.subscribe(each.append) for executor, each in zip((tools.live, tools.lone, session), heard, strict=True)
    ]
    tools.show(await record(tool("now", "Tell the time, better."), tool("then")))
    assert heard == [[CatalogDiff(modified=("now",))]] * 3
    for stop in stops:
        stop()
    await session.aclose()


async def test_last_good_tools_of_a_server_that_fails_stay_and_can_be_called(harness: Harness) -> None:
    tools = await harness.tools()
    good = await record(tool())
    tools.show(replace(good, status="failed", stale=True, error="it does not start"))
    assert (await run(tools.live)).status == "success"


@pytest.mark.requirement("C-8-pin")
async def test_a_quarantined_tool_is_not_listed_and_its_calls_reach_no_server(harness: Harness) -> None:
    tools = await harness.tools()
    session = tools.per_session()
    tools.show(await record(tool("now"), tool("then"), quarantined=("now",)))
    for executor in (tools.live, tools.lone, session):
        assert list(executor.catalog) == ["then"]
        result = await run(executor)
        assert (result.status, result.metadata) == ("unavailable", {"code": "quarantined"})
        assert "is not accepted yet" in result.output
    assert harness.script.tried == 0
    await session.aclose()


@pytest.mark.requirement("DISC-refresh-running")
async def test_a_listing_goes_over_the_shared_connection_while_it_is_open(harness: Harness) -> None:
    tools = await harness.tools()
    assert await tools.listing() == [tool()]
    assert (harness.script.tried, harness.script.left) == (1, 1)
    await run(tools.live)
    assert await tools.listing() == [tool()]
    assert (harness.script.tried, harness.script.left) == (2, 1)


@pytest.mark.parametrize("error", [ConnectionFailed("no"), ServerRefused(-32601, "no"), BadAnswer("no")])
async def test_a_listing_that_fails_says_why(harness: Harness, error: Exception) -> None:
    tools = await harness.tools()
    harness.script.fails = error
    with pytest.raises(ListingFailed, match="no"):
        await tools.listing()


async def test_changes_of_the_shared_connection_are_heard_and_so_is_its_beginning(harness: Harness) -> None:
    tools = await harness.tools()
    await run(tools.live)
    assert harness.changes == 1
    harness.script.connections[0].change()
    assert harness.changes == 2


async def test_an_empty_record_of_a_good_listing_makes_every_rule_unmatched(harness: Harness) -> None:
    tools = await harness.tools()
    tools.show(DiscoveryRecord(status="success"))
    assert (list(tools.live.catalog), tools.unmatched_rules) == ([], ())
