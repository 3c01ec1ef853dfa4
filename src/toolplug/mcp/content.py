"""The result of a call as the protocol has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolplug.catalog.call import ToolResult
from toolplug.signatures.values import encoded

APPROVAL = "toolplug/approval"
"""In a request's `_meta`: the approval that a call needs, where a person has given it."""

_OWN = "toolplug/"

Block = Mapping[str, object]


def content_of(result: ToolResult, is_block: Callable[[Block], bool]) -> dict[str, object]:
    """The result's text, then its parts; every status but success is an error.

    A part that is no block of the protocol becomes text. `structuredContent` is there where the value is an object,
    which is all that both eras allow. How the call ended, and what is for the caller alone, stands in `_meta`.
    """
    text = [{"type": "text", "text": result.output}] if result.output or not result.parts else []
    meta: dict[str, object] = {f"{_OWN}status": result.status.value}
    if result.metadata:
        meta[f"{_OWN}metadata"] = dict(result.metadata)
    if result.retry_after_s is not None:
        meta[f"{_OWN}retry_after_s"] = result.retry_after_s
    answer: dict[str, object] = {
        "content": [*text, *(part if is_block(part) else _as_text(part) for part in result.parts)],
        "isError": result.is_error,
        "resultType": "complete",
        "_meta": meta,
    }
    structured = result.structured
    if isinstance(structured, dict):
        answer["structuredContent"] = structured
    return answer


def _as_text(part: Block) -> Block:
    return {"type": "text", "text": encoded(part) or ""}
