"""Tools that are listed before the executor that runs them is made: a call makes it first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Plan, Target, Tool
from toolplug.execution.current_hooks import CurrentHooks
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.knobs import DEFAULT_ORIGIN, NO_LIMITS, Layer, effective
from toolplug.execution.results import unavailable
from toolplug.execution.switch import SourceSwitch
from toolplug.toolsets.around import Around
from toolplug.toolsets.opened import NotOpened
from toolplug.toolsets.toolset import Toolset

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
    held = effective(
        (around.limits(), Layer((KIND, toolset.id), NO_LIMITS, _nowhere)),
        around.ledger,
        wished_timeout_s=definition.timeout_s,
        blocking=False,
        repeatable=bool(definition.hints.read_only or definition.hints.idempotent),
    )
    plan = Plan(
        ref=definition.ref,
        target=target,
        schema=definition.parameters,
        switch=switch,
        series=around.ledger.series(label, definition.ref.name),
        brake=around.ledger.abandoned(KIND, toolset.id),
        carrier=around.carrier,
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
