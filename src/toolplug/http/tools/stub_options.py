"""Options of the built-in stub that stands for a tool, checked by the schema that its provider declares."""

from __future__ import annotations

from collections.abc import Mapping

from toolplug.execution.executor import ToolExecutor
from toolplug.http.problem import invalid_request


def checked_options(executor: ToolExecutor, name: str, options: Mapping[str, object]) -> Mapping[str, object]:
    """The options, which the tool takes. Raises `HttpProblem` otherwise; a tool that is not listed is not told on."""
    tool = executor.catalog.find(name)
    if tool is None:
        return options
    hosted = tool.definition.hosted
    schema = None if hosted is None else hosted.options
    if schema is None:
        raise invalid_request(f"the tool {name!r} takes no options; leave them out", "options")
    lines = schema.refusals(options)
    if lines:
        raise invalid_request(f"options of the tool {name!r}: {'; '.join(lines)}", "options")
    return options
