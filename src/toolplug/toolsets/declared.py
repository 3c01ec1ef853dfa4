"""Toolsets with declared tools, listed before their executor exists, and the limits of a toolset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Approval, Artifacts, CallRunner, Plan, Replay, Target, Tool
from toolplug.execution.accounting import CallAccounting, CallCounters
from toolplug.execution.limits import SourceSwitch
from toolplug.execution.live import ToolExecutor
from toolplug.execution.policies import CurrentHooks, Hooks
from toolplug.execution.resolved_limits import DEFAULT_ORIGIN, NO_LIMITS, LimitLevel, LimitSources, resolve_limits
from toolplug.execution.results import unavailable
from toolplug.toolsets.opened import NotOpened
from toolplug.toolsets.toolset import Toolset


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The memory and the rules around calls. `unknown` counts calls of names that nobody lists.

    `limits()` gives the limits for every tool, and `hooks()` the host-wide hooks, as they are now.
    """

    unknown: CallCounters
    accounting: CallAccounting
    runner: CallRunner
    limits: Callable[[], LimitLevel]
    hooks: Hooks = tuple
    replay: Replay | None = None
    approvals: Approval | None = None
    artifacts: Artifacts | None = None


_POLICY = "policy"


def limited(catalog: Catalog, layer: LimitLevel, accounting: CallAccounting, artifacts: Artifacts | None) -> Catalog:
    """The same tools under the limits of this level, too (CONTRACT.md section 2).

    A timeout or size of a tool's own rule stays; a counter counts the calls of all these tools together, whoever makes
    them. Tools whose limits are drawn from no levels are left as they are.
    """

    def change(_: ToolDefinition, plan: Plan) -> Plan:
        if not isinstance(plan.basis, LimitSources):
            return plan
        held = plan.basis.within(layer).resolve(accounting)
        policy = [item for item in plan.settings if item.knob == _POLICY]
        return replace(
            plan,
            timeout_s=held.timeout_s,
            max_result_bytes=held.max_result_bytes,
            limiters=held.limiters,
            retry=held.retry,
            artifacts=artifacts if held.artifacts else None,
            settings=(*policy, *held.settings),
            basis=held.basis,
        )

    return catalog.planned(change)


KIND = "toolset"

Use = Callable[[], AbstractAsyncContextManager[ToolExecutor]]
"""The executor for one call; entering raises `NotOpened`."""


def declared(
    toolset: Toolset, tools: tuple[ToolDefinition, ...], around: Around, switch: SourceSwitch, use: Use
) -> Catalog:
    """These tools under the toolset's prefix; a call of one runs it, by its own name, in the executor that `use` gives.

    The rules around the call are those for every tool of the host; the executor's own come on top.
    """
    target = _target(toolset, use)
    return Catalog(_planned(item, toolset, around, switch, target) for item in tools).prefixed(toolset.prefix)


def _target(toolset: Toolset, use: Use) -> Target:
    async def target(call: ToolCall, context: CallContext) -> ToolResult:
        try:
            async with use() as executor:
                return await executor.execute(call, context)
        except NotOpened:
            named = call._replace(name=f"{toolset.prefix}.{call.name}")
            return unavailable(named, f"toolset {toolset.id!r} could not be opened", code="toolset_not_opened")

    return target


def _planned(item: ToolDefinition, toolset: Toolset, around: Around, switch: SourceSwitch, target: Target) -> Tool:
    definition = item.owned_by(KIND, toolset.id)
    label = f"{KIND}:{toolset.id}"
    held = resolve_limits(
        (around.limits(), LimitLevel((KIND, toolset.id), NO_LIMITS, _nowhere)),
        around.accounting,
        wished_timeout_s=definition.timeout_s,
        blocking=False,
        repeatable=bool(definition.hints.read_only or definition.hints.idempotent),
    )
    plan = Plan(
        ref=definition.ref,
        target=target,
        schema=definition.parameters,
        switch=switch,
        counters=around.accounting.counters(label, definition.ref.name),
        abandoned=around.accounting.abandoned(KIND, toolset.id),
        runner=around.runner,
        timeout_s=held.timeout_s,
        max_result_bytes=held.max_result_bytes,
        limiters=held.limiters,
        retry=held.retry,
        replay=around.replay,
        artifacts=around.artifacts if held.artifacts else None,
        observers=(CurrentHooks(around.hooks),),
        settings=held.settings,
    )
    return Tool(definition, plan)


def _nowhere(knob: str) -> str:
    """Where a knob of a level that sets none was set."""
    return DEFAULT_ORIGIN
