"""Toolsets with declared tools, which are listed before their executor exists, and the limits of a toolset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Target, Tool
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.limits.limiters import SourceSwitch
from toolplug.execution.limits.resolved_limits import LimitLevel
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource
from toolplug.execution.results import unavailable
from toolplug.toolsets.opened import NotOpened
from toolplug.toolsets.toolset import Toolset

KIND = "toolset"

Use = Callable[[], AbstractAsyncContextManager[ToolExecutor]]
"""The executor for one call; entering raises `NotOpened`."""


def declare_tools(
    toolset: Toolset, tools: tuple[ToolDefinition, ...], services: CallServices, switch: SourceSwitch, use: Use
) -> Catalog:
    """Return these tools under the toolset's prefix; calls run in the executor that `use` returns, by their own names.

    The host's rules apply to the call, and the executor's own in addition.
    """
    builder = PlanBuilder(services, LimitLevel((KIND, toolset.id)))
    abandoned = services.accounting.abandoned_limit(KIND, toolset.id)
    target = _target(toolset, use)

    def tool(item: ToolDefinition) -> Tool:
        definition = item.owned_by(KIND, toolset.id)
        counters = services.accounting.counters(f"{KIND}:{toolset.id}", definition.ref.name)
        source = PlanSource(target, switch, counters, abandoned)
        return Tool(definition, builder.build(definition, source, author_timeout_s=definition.timeout_s))

    return toolset.rename_tools(Catalog(tool(item) for item in tools))


def _target(toolset: Toolset, use: Use) -> Target:
    async def target(call: ToolCall, context: CallContext) -> ToolResult:
        try:
            async with use() as executor:
                return await executor.execute(call, context)
        except NotOpened:
            # The target is called by the tool's own name, without the prefix that the caller knows.
            named = call._replace(name=f"{toolset.prefix}.{call.name}")
            return unavailable(named, f"toolset {toolset.id!r} could not be opened", code="toolset_not_opened")

    return target
