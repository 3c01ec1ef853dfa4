"""A server whose entry changes, or that is switched off, while its tools are in use."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.mcp.servers.scripted import ME, TIME, Harness, record, run, settled, tool

from toolplug import CallContext, ToolCall
from toolplug.catalog.catalog import CatalogDiff
from toolplug.execution.plans import ToolRule
from toolplug.execution.resolved_limits import Limits
from toolplug.execution.run import run as run_plan
from toolplug.parts.mcp.client.server_config import Command

pytestmark = pytest.mark.anyio

OTHER = replace(TIME, transport=Command(command="other"))
OFF = replace(TIME, enabled=False)


@pytest.mark.requirement("I5-1-changed")
async def test_a_changed_rule_holds_for_the_next_call_over_the_same_connection(harness: Harness) -> None:
    tools = await harness.tools()
    session = tools.per_session()
    await run(tools.live)
    await run(session)
    tools.configure(replace(TIME, tools={"now": ToolRule(policy="deny")}))
    assert [(await run(executor)).status for executor in (tools.live, tools.lone, session)] == ["denied"] * 3
    tools.configure(replace(TIME, limits=Limits.model_validate({"timeout": "3s"})))
    assert [executor.catalog["now"].plan.timeout_s for executor in (tools.live, tools.lone, session)] == [3] * 3
    assert [(await run(executor)).output for executor in (tools.live, session)] == ["now of 1", "now of 2"]
    await session.aclose()


@pytest.mark.requirement("I5-1-changed")
async def test_a_changed_command_lets_running_calls_end_and_new_ones_go_to_the_new_server(harness: Harness) -> None:
    tools = await harness.tools()
    session = tools.per_session()
    executors = (tools.live, session)
    for executor in executors:
        await run(executor)
    harness.script.answering = asyncio.Event()
    calls = [asyncio.create_task(run(executor)) for executor in executors]
    await settled()
    tools.configure(OTHER)
    later = [asyncio.create_task(run(executor)) for executor in executors]
    await settled()
    assert harness.script.left == 0
    harness.script.answering.set()
    assert [(await call).output for call in calls] == ["now of 1", "now of 2"]
    assert [(await call).output for call in later] == ["now of 3", "now of 4"]
    await settled()
    assert harness.script.left == 2
    assert harness.script.transports[2:] == [OTHER.transport] * 2
    await session.aclose()


async def test_a_call_that_does_not_end_keeps_the_old_server_for_the_drain_time_only(harness: Harness) -> None:
    tools = await harness.tools(replace(TIME, limits=Limits.model_validate({"drain": "10ms"})))
    await run(tools.live)
    harness.script.answering = asyncio.Event()
    call = asyncio.create_task(run(tools.live))
    await settled()
    tools.configure(replace(OTHER, limits=Limits.model_validate({"drain": "10ms"})))
    result = await call
    assert (result.status, result.metadata) == ("timeout", {"code": "draining"})


@pytest.mark.requirement("LAW-3")
@pytest.mark.requirement("I5-1-switched-off")
async def test_a_server_that_is_switched_off_lists_nothing_and_runs_no_plan_that_somebody_kept(
    harness: Harness,
) -> None:
    tools = await harness.tools()
    session = tools.per_session()
    executors = (tools.live, tools.lone, session)
    plans = [executor.catalog["now"].plan for executor in executors]
    await run(tools.live)
    heard: list[CatalogDiff] = []
    stop = tools.live.subscribe(heard.append)
    tools.configure(OFF)
    assert [list(executor.catalog) for executor in executors] == [[], [], []]
    assert [(await run(executor)).status for executor in executors] == ["unknown_tool"] * 3
    kept = [await run_plan(plan, ToolCall("c", "now"), CallContext(principal=ME)) for plan in plans]
    assert [result.status for result in kept] == ["unknown_tool"] * 3
    await settled()
    assert (harness.script.tried, harness.script.left) == (1, 1)
    tools.configure(TIME)
    assert [(await run(executor)).output for executor in executors] == ["now of 2", "now of 3", "now of 4"]
    assert heard == [CatalogDiff(removed=("now",)), CatalogDiff(added=("now",))]
    stop()
    await session.aclose()


async def test_running_calls_of_a_server_that_is_switched_off_end_by_themselves(harness: Harness) -> None:
    tools = await harness.tools()
    await run(tools.live)
    harness.script.answering = asyncio.Event()
    call = asyncio.create_task(run(tools.live))
    await settled()
    tools.configure(OFF)
    harness.script.answering.set()
    assert (await call).output == "now of 1"


async def test_a_server_that_is_off_when_it_is_added_can_be_switched_on(harness: Harness) -> None:
    tools = await harness.tools(OFF)
    session = tools.per_session()
    assert [list(executor.catalog) for executor in (tools.live, tools.lone, session)] == [[], [], []]
    tools.configure(TIME)
    assert [(await run(executor)).output for executor in (tools.live, session)] == ["now of 1", "now of 2"]
    await session.aclose()


async def test_a_closed_server_has_no_tools_and_no_connections_whatever_comes_later(harness: Harness) -> None:
    tools = await harness.tools()
    session = tools.per_session()
    executors = (tools.live, tools.lone, session)
    for executor in executors:
        await run(executor)
    await tools.aclose()
    tools.configure(OTHER)
    tools.show(await record(tool("new")))
    late = tools.per_session()
    assert [list(executor.catalog) for executor in (*executors, late)] == [[], [], [], []]
    assert (harness.script.tried, harness.script.left) == (3, 3)
    await late.aclose()
