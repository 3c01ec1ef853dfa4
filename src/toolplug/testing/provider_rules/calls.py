"""What a tool answers: to its example, to wrong arguments, and to a name that is not there."""

from __future__ import annotations

from collections.abc import Mapping

from toolplug.catalog.call import ToolResult, ToolStatus
from toolplug.catalog.definition import ToolDefinition
from toolplug.testing.argument_mutations import mutations
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import Started

NO_TOOL = "no_tool_has_this_name"


async def call_rules(run: Started) -> list[BrokenRule]:
    """The rules of single calls; the examples come first, in their order."""
    broken = [*_named(run), *await _unknown(run)]
    for name, arguments in run.examples():
        broken += _result(run.registry.catalog[name].definition, await run.call(name, arguments))
    for name, arguments in run.examples():
        broken += await _wrong_arguments(run, run.registry.catalog[name].definition, arguments)
    return broken


def _named(run: Started) -> list[BrokenRule]:
    """Is there an example for each tool and a tool for each example, and does the provider run what it lists."""
    subject, provider = run.subject, run.generation.provider
    listed = [item.name for item in provider.tools()]
    given = [*subject.calls, *subject.uncalled]
    broken = [
        BrokenRule("examples", f"tool {name!r}", "has no example call", "give its arguments in calls=, or uncalled=")
        for name in listed
        if name not in given
    ]
    broken += [
        BrokenRule("examples", f"example {name!r}", "is no tool of it", f"it lists {', '.join(listed) or 'nothing'}")
        for name in given
        if name not in listed
    ]
    broken += [
        BrokenRule("can-execute", f"tool {name!r}", "is listed but can_execute() refuses it", "say what tools() says")
        for name in listed
        if not provider.can_execute(name)
    ]
    if provider.can_execute(NO_TOOL):
        what = f"can_execute({NO_TOOL!r}) is true, and no tool is called that"
        broken.append(BrokenRule("can-execute", "any name", what, "say what tools() says"))
    return broken


async def _unknown(run: Started) -> list[BrokenRule]:
    result = await run.call(NO_TOOL, {})
    if result.status is ToolStatus.UNKNOWN_TOOL:
        return []
    return [BrokenRule("unknown-tool", f"tool {NO_TOOL!r}", f"answers {result.status}", "list it, or do not run it")]


def _result(definition: ToolDefinition, result: ToolResult) -> list[BrokenRule]:
    where = f"example of tool {definition.name!r}"
    if result.is_error:
        fix = "mend the tool or the example; its log says where it failed"
        return [BrokenRule("calls", where, f"ends with {result.status}: {result.output}", fix)]
    declared = definition.output_schema
    lines = declared.refusals(result.structured) if declared is not None and result.structured is not None else ()
    if lines:
        fix = "return what the annotation says, or annotate what it returns"
        return [BrokenRule("output", where, f"is not what its output schema says: {'; '.join(lines)}", fix)]
    return []


async def _wrong_arguments(run: Started, definition: ToolDefinition, example: Mapping[str, object]) -> list[BrokenRule]:
    broken: list[BrokenRule] = []
    for what, arguments in mutations(definition.parameters, example):
        result = await run.call(definition.name, arguments)
        if result.status is not ToolStatus.INVALID_ARGUMENTS:
            fix = "let the schema refuse it: required, types, additionalProperties"
            where = f"tool {definition.name!r} {what}"
            broken.append(BrokenRule("invalid-arguments", where, f"runs and answers {result.status}", fix))
    return broken
