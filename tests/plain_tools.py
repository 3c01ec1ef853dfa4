"""Tools with real, small plans for tests that list and resolve but seldom call."""

from __future__ import annotations

from collections.abc import Mapping

from toolplug.catalog.call import CallContext, ToolCall
from toolplug.catalog.definition import NO_HINTS, Hosted, Note, ToolDefinition, ToolHints
from toolplug.catalog.plan import Gate, Plan, Target, Tool
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.task_runner import TaskRunner

OBJECT: Mapping[str, object] = {"type": "object", "properties": {}}


def plain_tool(
    name: str,
    *,
    source: str = "notes",
    description: str = "",
    parameters: Mapping[str, object] = OBJECT,
    output_schema: Mapping[str, object] | None = None,
    hints: ToolHints = NO_HINTS,
    notes: tuple[Note, ...] = (),
    hosted: Hosted | None = None,
    gates: tuple[Gate, ...] = (),
    runner: TaskRunner | None = None,
    title: str = "",
    icons: tuple[Mapping[str, object], ...] = (),
) -> Tool:
    """A tool of a native provider that answers `<source>:<its own name>`."""
    definition = ToolDefinition(
        name=name,
        description=description,
        parameters=parameters,
        output_schema=output_schema,
        hints=hints,
        notes=notes,
        hosted=hosted,
        title=title,
        icons=icons,
    ).owned_by("native", source)
    accounting = CallAccounting()
    plan = Plan(
        ref=definition.ref,
        target=_answers(f"{source}:{name}"),
        schema=definition.parameters,
        switch=SourceSwitch(),
        counters=accounting.counters(source, name),
        abandoned=accounting.abandoned_limit("native", source),
        runner=runner or TaskRunner(),
        timeout_s=5.0,
        max_result_bytes=1024,
        gates=gates,
    )
    return Tool(definition, plan)


def _answers(text: str) -> Target:
    async def answer(call: ToolCall, context: CallContext) -> str:
        return text

    return answer
