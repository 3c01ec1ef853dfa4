"""What a server answered → the result of the call."""

from __future__ import annotations

from collections.abc import Mapping

from toolplug.catalog.call import EMPTY, ToolResult, ToolStatus
from toolplug.catalog.schema import Schema, compiled
from toolplug.mcp.connection import Answer

UNFIT = "structured content that does not fit the tool's output schema"


def result_of(answer: Answer, output: Schema | None) -> ToolResult:
    """The result: what is text as its output, a line each; every other block as a part.

    Structured content that does not fit the schema `output` is left out, which `metadata` says; the text stays.
    """
    text: list[str] = []
    parts: list[Mapping[str, object]] = []
    for block in answer.content:
        words = block.get("text")
        if block.get("type") == "text" and isinstance(words, str):
            text.append(words)
        else:
            parts.append(block)
    status = ToolStatus.TOOL_ERROR if answer.is_error else ToolStatus.SUCCESS
    structured = answer.structured
    if structured is None or output is None or answer.is_error or _fits(structured, output):
        return ToolResult("", "", "\n".join(text), status, structured, tuple(parts), EMPTY)
    return ToolResult("", "", "\n".join(text), status, None, tuple(parts), {"left_out": UNFIT})


def _fits(structured: object, output: Schema) -> bool:
    try:
        return compiled(output.text).is_valid(structured)
    except (TypeError, ValueError):
        return False
