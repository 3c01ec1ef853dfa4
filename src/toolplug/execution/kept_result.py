"""A result as JSON that a store keeps, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from toolplug.catalog.call import ToolResult, ToolStatus


class KeptResult(TypedDict):
    """A result without the id and name of the call, which belong to whoever asks for it."""

    output: str
    status: str
    structured: object
    parts: list[Mapping[str, object]]
    metadata: dict[str, object]
    retry_after_s: float | None


def kept_result(result: ToolResult) -> KeptResult:
    """The result as it is kept."""
    return {
        "output": result.output,
        "status": result.status.value,
        "structured": result.structured,
        "parts": list(result.parts),
        "metadata": dict(result.metadata),
        "retry_after_s": result.retry_after_s,
    }


def result_again(call_id: str, name: str, kept: KeptResult) -> ToolResult:
    """The result of this call."""
    return ToolResult(
        call_id,
        name,
        kept["output"],
        ToolStatus(kept["status"]),
        kept["structured"],
        tuple(kept["parts"]),
        kept["metadata"],
        kept["retry_after_s"],
    )
