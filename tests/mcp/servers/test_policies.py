"""The operator's rules around the tools of a server."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.mcp.servers.scripted import ME, TIME, Harness, record, run, settled, tool

from toolplug import Principal
from toolplug.execution.plans import ToolRule, add_limits
from toolplug.execution.resolved_limits import LimitLevel, Limits
from toolplug.parts.mcp.client.server_config import Server
from toolplug.parts.mcp.client.server_tools import ServerTools
from toolplug.parts.mcp.discovery.record import ServerName

pytestmark = pytest.mark.anyio


def ruled(policy: str | None = None, **rules: object) -> Server:
    """The server under a policy of its own and rules for some tools."""
    tools = {name: ToolRule.model_validate(rule) for name, rule in rules.items()}
    return replace(TIME, tools=tools, policy=policy or "allow", origin=lambda *path: "/".join(path))


@pytest.mark.requirement("C-3-policy-forms")
async def test_disable_hides_and_deny_lists_and_refuses(harness: Harness) -> None:
    server = ruled(hidden={"policy": "disable"}, refused={"policy": "deny"})
    tools = await harness.tools(server, tool("hidden"), tool("refused"), tool("free"))
    assert list(tools.live.catalog) == ["refused", "free"]
    assert (await run(tools.live, "hidden")).status == "unknown_tool"
    assert (await run(tools.live, "refused")).output == 'tool "refused" is not allowed: policy: its policy is deny'
    assert (await run(tools.live, "free")).status == "success"


async def test_a_servers_policy_holds_for_the_tools_that_no_rule_speaks_of(harness: Harness) -> None:
    tools = await harness.tools(ruled("deny", free={"policy": "allow"}), tool("free"), tool("other"))
    assert (await run(tools.live, "free")).status == "success"
    assert (await run(tools.live, "other")).status == "denied"


@pytest.mark.requirement("C-3-policy-http-server")
async def test_a_server_that_asks_needs_a_ticket_for_each_call(harness: Harness) -> None:
    tools = await harness.tools(ruled("ask"))
    asked = await run(tools.live)
    ticket = asked.metadata["approval"]
    assert (asked.status, harness.script.tried) == ("denied", 0)
    assert isinstance(ticket, dict)
    await harness.approvals.decide(ticket["id"], "approve", ME)
    assert (await run(tools.live, approval=ticket["id"])).output == "now of 1"
    assert (await run(tools.live, approval=ticket["id"])).status == "denied"


async def test_a_server_that_asks_is_not_run_where_nobody_can_be_asked(harness: Harness) -> None:
    services = replace(harness.services, approvals=None)
    tools = ServerTools(
        ruled("ask"), services, harness.script.connect, on_change=lambda: None, first=lambda listed: None
    )
    with pytest.raises(ValueError, match="there is no one to ask"):
        tools.show(await record(tool()))
    await tools.aclose()


@pytest.mark.requirement("C-2-tenants")
async def test_a_rule_may_name_the_tenants_that_see_a_tool(harness: Harness) -> None:
    tools = await harness.tools(ruled(now={"tenants": ["t1"]}))
    assert (await run(tools.live)).status == "unknown_tool"
    assert list(tools.live.catalog.visible_to(ME)) == []
    assert (await run(tools.live, principal=Principal(tenant="t1"))).status == "success"


@pytest.mark.requirement("I5-1-tenant")
async def test_a_tenants_own_server_is_nobody_elses_through_any_of_its_executors(harness: Harness) -> None:
    tools = await harness.tools(replace(TIME, name=ServerName("time", "t1")))
    session = tools.per_session()
    for executor in (tools.live, tools.lone, session):
        assert (await run(executor)).status == "unknown_tool"
        assert (await run(executor, principal=Principal(tenant="t1"))).status == "success"
    await session.aclose()


async def test_the_name_of_a_tenants_server_stands_in_no_metric(harness: Harness) -> None:
    tools = await harness.tools(replace(TIME, name=ServerName("secret", "t1")))
    await run(tools.live, principal=Principal(tenant="t1"))
    counted = [
        (counters.provider, counters.tool_name) for counters in harness.accounting.all_counters() if counters.ended
    ]
    assert counted == [("mcp:_added", "_added")]


@pytest.mark.requirement("I5-1-tenant")
async def test_two_tenants_servers_of_one_id_do_not_count_together(harness: Harness) -> None:
    once = Limits.model_validate({"rate": "1/minute"})
    for tenant in ("t1", "t2", None):
        tools = await harness.tools(replace(TIME, name=ServerName("time", tenant), limits=once))
        caller = Principal(tenant=tenant or "t3")
        assert [(await run(tools.live, principal=caller)).status for _ in range(2)] == ["success", "limited"]


async def test_limits_of_the_host_the_server_and_the_tool_must_all_admit(harness: Harness) -> None:
    server = replace(
        ruled(now={"limits": {"timeout": "5s"}}), limits=Limits.model_validate({"timeout": "7s", "max_concurrency": 1})
    )
    harness.limits = Limits.model_validate({"rate": "3/minute", "timeout": "9s"})
    tools = await harness.tools(server, tool("now"), tool("then"))
    plans = [tools.live.catalog[name].plan for name in ("now", "then")]
    assert [plan.timeout_s for plan in plans] == [5, 7]
    assert [[limiter.setting for limiter in plan.limiters] for plan in plans] == [["rate", "max_concurrency"]] * 2
    assert plans[0].settings[0] == ("policy", "allow", "policy")
    harness.script.answering = asyncio.Event()
    call = asyncio.create_task(run(tools.live))
    await settled()
    assert (await run(tools.live, "then")).output.startswith('tool "then" is limited: 1 call of time running already')
    harness.script.answering.set()
    assert (await call).status == "success"


async def test_the_limits_of_a_toolset_come_between_those_of_server_and_tool(harness: Harness) -> None:
    tools = await harness.tools(ruled(now={"limits": {"timeout": "5s"}}), tool("now"), tool("then"))
    level = LimitLevel(("toolset", "clock"), Limits.model_validate({"timeout": "6s"}), lambda name: "here")
    catalog = add_limits(tools.live.catalog, level, harness.services)
    assert [tool.plan.timeout_s for tool in catalog.values()] == [5, 6]


async def test_only_tools_that_may_be_repeated_are_tried_again(harness: Harness) -> None:
    harness.limits = Limits.model_validate({"retries": 2})
    hinted = [tool(name, annotations={name: True}) for name in ("readOnlyHint", "idempotentHint", "destructiveHint")]
    tools = await harness.tools(TIME, *hinted)
    assert [tool.plan.retry and tool.plan.retry.attempts for tool in tools.live.catalog.values()] == [2, 2, None]


@pytest.mark.requirement("I5-1-unmatched")
async def test_a_rule_for_a_tool_that_the_server_does_not_have_can_be_found(harness: Harness) -> None:
    tools = await harness.tools(ruled(now={}, gone={"policy": "deny"}))
    assert tools.unmatched_rules == ("gone",)
    tools.show(await record(tool("gone")))
    assert tools.unmatched_rules == ("now",)


async def test_nothing_is_said_of_rules_before_the_server_has_listed_anything(harness: Harness) -> None:
    tools = ServerTools(
        ruled(now={}), harness.services, harness.script.connect, on_change=lambda: None, first=lambda listed: None
    )
    assert tools.unmatched_rules == ()
    assert list(tools.live.catalog) == []
    await tools.aclose()
