"""Every limit, set at every level, reaches the plans of every kind of tool: nobody has to remember to hand it on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolplug import CallContext, FunctionProvider, tool
from toolplug.catalog.definition import ToolDefinition, ToolHints
from toolplug.catalog.plan import Plan
from toolplug.cluster.limits import ClusterLimits, ClusterRate
from toolplug.cluster.processes import Processes
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.limiters import AbandonedCallLimit, SourceSwitch
from toolplug.execution.plans import CallServices, PlanSource, ToolRule, add_limits
from toolplug.execution.resolved_limits import NO_LIMITS, LimitLevel, Limits
from toolplug.execution.task_runner import ThreadRunner
from toolplug.parts.mcp.client.connection_strategies import SwitchedConnection
from toolplug.parts.mcp.client.plans import Labels, ServerPlanner
from toolplug.parts.mcp.client.server_config import Command, Server
from toolplug.parts.mcp.discovery.record import FoundTool, ServerName
from toolplug.parts.sessions.tools.session_tool import SessionPlanner
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.planning import planned_tools
from toolplug.stores.memory import MemoryStore
from toolplug.toolsets.toolset import PerSession, Toolset, declare_tools

SAMPLES: dict[str, object] = {
    "timeout": "7s",
    "max_concurrency": 3,
    "queue": 2,
    "rate": "5/minute",
    "max_result_bytes": 99,
    "retries": 4,
    "breaker": {"failures": 6, "open_for": "8s"},
    "drain": "9s",
    "artifacts": True,
    "scope": "cluster",
    "without_store": "share",
}
"""A value of each limit that is not its default."""

NEEDS: dict[str, dict[str, object]] = {
    "queue": {"max_concurrency": 1},
    "scope": {"rate": "5/minute"},
    "without_store": {"max_concurrency": 1, "scope": "cluster"},
}
"""What must be set for a limit to mean anything."""

IN_PLAN: dict[str, Callable[[Plan], object]] = {
    "timeout": lambda plan: plan.timeout_s,
    "max_result_bytes": lambda plan: plan.max_result_bytes,
    "retries": lambda plan: plan.retry and plan.retry.attempts,
    "artifacts": lambda plan: plan.artifacts is not None,
    "queue": lambda plan: [getattr(limiter, "queue", None) for limiter in plan.limiters][-1],
    "scope": lambda plan: "cluster" if isinstance(plan.limiters[-1], ClusterRate) else "process",
    "without_store": lambda plan: "share" if getattr(plan.limiters[-1], "share", False) else "refuse",
}
"""The field of a plan that a limit decides, where it has one of its own."""

OF_A_COUNTER = {"queue", "scope", "without_store"}
"""Limits that only say more about a counter of their level."""

OF_COUNTERS = {"rate", "max_concurrency", "breaker"}


class Kept:
    async def keep(self, text: str, context: CallContext) -> str:
        return "handle"


class Reads(FunctionProvider):
    @tool(read_only=True)
    async def read(self) -> str:
        return "read"


READ = ToolDefinition(name="read", hints=ToolHints(read_only=True))


def services(host: Limits = NO_LIMITS) -> CallServices:
    store = MemoryStore()
    accounting = CallAccounting(cluster=ClusterLimits(store, Processes(store)))
    return CallServices(accounting=accounting, artifacts=Kept(), limits=lambda: LimitLevel((), host))


def of_provider(host: Limits = NO_LIMITS, source: Limits = NO_LIMITS, own: Limits = NO_LIMITS) -> Plan:
    entry = ProviderEntry(key="p", type="reads", host_limits=host, limits=source, tools={"read": ToolRule(limits=own)})
    (planned,) = planned_tools(entry, Reads(), services(host), SourceSwitch(), ThreadRunner("p"))
    return planned.plan


def of_server(host: Limits = NO_LIMITS, source: Limits = NO_LIMITS, own: Limits = NO_LIMITS) -> Plan:
    name = ServerName("s")
    server = Server(name=name, transport=Command(command="s"), limits=source, tools={"read": ToolRule(limits=own)})
    given = services(host)
    line: Any = object()
    found = FoundTool(READ.owned_by("mcp", "s"))
    return (
        ServerPlanner(server, given, Labels(given.accounting, name))
        .catalog([found], SwitchedConnection(line))["read"]
        .plan
    )


def of_session(host: Limits) -> Plan:
    given = services(host)
    counters = given.accounting.counters("_session", "_session")
    source = PlanSource(no_target, SourceSwitch(), counters, AbandonedCallLimit("_session"))
    return SessionPlanner(given).tool(READ.owned_by("session", "_session"), source).plan


def declared_by_toolset(host: Limits) -> Plan:
    toolset = Toolset(id="t", prefix="t", source=PerSession(factory=no_factory))
    return declare_tools(toolset, (READ,), services(host), SourceSwitch(), no_use)["t.read"].plan


def in_toolset(plan: Callable[[], Plan], toolset: Limits) -> Plan:
    catalog = declare_tools(
        Toolset(id="t", prefix="t", source=PerSession(factory=no_factory)), (READ,), services(), SourceSwitch(), no_use
    )
    around = catalog.planned(lambda _, __: plan())
    return add_limits(around, LimitLevel(("toolset", "t"), toolset), services())["t.read"].plan


async def no_target(call: object, context: object) -> object:
    raise AssertionError("nothing is called here")


def no_factory() -> ToolExecutor:
    raise AssertionError("nothing is made here")


@asynccontextmanager
async def no_use() -> AsyncGenerator[ToolExecutor]:
    yield no_factory()


PLANS: dict[str, Callable[[Limits], Plan]] = {
    "provider's tool, all tools": lambda limits: of_provider(host=limits),
    "provider's tool, provider": lambda limits: of_provider(source=limits),
    "provider's tool, tool": lambda limits: of_provider(own=limits),
    "provider's tool, toolset": lambda limits: in_toolset(of_provider, limits),
    "server's tool, all tools": lambda limits: of_server(host=limits),
    "server's tool, server": lambda limits: of_server(source=limits),
    "server's tool, tool": lambda limits: of_server(own=limits),
    "server's tool, toolset": lambda limits: in_toolset(of_server, limits),
    "session's tool, all tools": of_session,
    "session's tool, toolset": lambda limits: in_toolset(lambda: of_session(NO_LIMITS), limits),
    "toolset's tool, all tools": declared_by_toolset,
}


def test_there_is_a_sample_of_every_limit() -> None:
    assert set(SAMPLES) == set(Limits.model_fields)


@pytest.mark.requirement("C-2-specific-wins", "C-2-counters-all-levels")
@pytest.mark.parametrize("path", PLANS)
@pytest.mark.parametrize("knob", Limits.model_fields)
def test_a_limit_that_is_set_reaches_the_plan(knob: str, path: str) -> None:
    limits = Limits.model_validate({**NEEDS.get(knob, {}), knob: SAMPLES[knob]})
    value, plan = getattr(limits, knob), PLANS[path](limits)

    resolved = plan.limits
    assert resolved is not None
    if knob in OF_COUNTERS:
        assert [limiter.setting for limiter in plan.limiters] == [knob]
        assert [limiter.setting for limiter in resolved.limiters] == [knob]
    else:
        assert knob in OF_A_COUNTER or getattr(resolved.values, knob) == value
        assert knob not in IN_PLAN or IN_PLAN[knob](plan) == value
    assert [item.origin for item in plan.settings if item.name == knob] != []


@pytest.mark.requirement("C-2-specific-wins")
def test_a_timeout_that_is_set_bounds_what_a_caller_may_ask_of_a_session() -> None:
    default, set_for_all = of_session(NO_LIMITS), of_session(Limits(timeout=7.0))
    in_a_toolset = in_toolset(lambda: default, Limits(timeout=8.0))

    assert [(plan.timeout_s, plan.longest_s) for plan in (default, set_for_all, in_a_toolset)] == [
        (30.0, 300.0),
        (7.0, None),
        (8.0, None),
    ]
    assert [item.origin for item in default.settings if item.name == "timeout"] == ["default of session tools"]


@pytest.mark.parametrize("path", PLANS)
def test_a_plan_without_limits_has_nothing_around_it_that_a_limit_would_add(path: str) -> None:
    plan = PLANS[path](NO_LIMITS)
    assert (plan.limiters, plan.retry, plan.artifacts) == ((), None, None)
