"""From what a tool did to the result that its caller gets: statuses and texts of CONTRACT.md section 3."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from toolplug.catalog.call import EMPTY, ToolCall, ToolResult, ToolStatus, quick_result
from toolplug.catalog.plan import Plan, Refusal
from toolplug.errors import InvalidArguments, ToolError
from toolplug.execution.values import encoded, plain

_LOG = logging.getLogger("toolplug.execution")
_SUCCESS = ToolStatus.SUCCESS


def succeeded(call: ToolCall, value: object) -> ToolResult:
    """The result of a tool that returned."""
    if type(value) is str and value.isascii():
        return quick_result(ToolResult, (call.id, call.name, value, _SUCCESS, None, (), EMPTY, None))
    if isinstance(value, ToolResult):
        return _filled(call, value)
    text = value if isinstance(value, str) else encoded(value)
    if text is None or not _unicode(text):
        return not_json(call)
    structured = None if isinstance(value, str) else plain(value, text)
    return ToolResult(call.id, call.name, text, _SUCCESS, structured)


def _filled(call: ToolCall, value: ToolResult) -> ToolResult:
    structured = value.structured
    text = None if structured is None else encoded(structured)
    if structured is not None and text is None:
        return not_json(call)
    output = value.output or text or ""
    try:
        status = ToolStatus(value.status)
    except ValueError:
        return failed(call, ValueError("no status of a result"), None)
    if not _unicode(output) or encoded(dict(value.metadata)) is None:
        return not_json(call)
    structured = None if text is None else plain(structured, text)
    return value._replace(call_id=call.id, name=call.name, output=output, structured=structured, status=status)


def not_json(call: ToolCall) -> ToolResult:
    """A result that no caller could read."""
    return ended(call, ToolStatus.TOOL_ERROR, f'result of tool "{call.name}" is not JSON')


def failed(call: ToolCall, error: BaseException, plan: Plan | None) -> ToolResult:
    """The result of a tool that raised: its own words for a `ToolError`, nothing of any other exception."""
    if isinstance(error, ToolError):
        text = str(error).encode("utf-8", "replace").decode()
        metadata = error.metadata if encoded(error.metadata) is not None else EMPTY
        return ToolResult(
            call.id, call.name, text, ToolStatus.TOOL_ERROR, metadata=metadata, retry_after_s=error.retry_after_s
        )
    if isinstance(error, InvalidArguments):
        return invalid(call, error.lines)
    source = plan.ref.source if plan else call.name
    _LOG.error("tool %r of provider %r raised %s at %s", call.name, source, type(error).__name__, _place(error))
    _LOG.debug("traceback of tool %r", call.name, exc_info=error)
    return ended(call, ToolStatus.PANIC, f'internal error: builtin tool "{call.name}" panicked')


def invalid(call: ToolCall, lines: Sequence[str]) -> ToolResult:
    """Arguments that do not fit."""
    return ended(
        call, ToolStatus.INVALID_ARGUMENTS, "\n".join([f'invalid arguments for tool "{call.name}"', *lines[:20]])
    )


def timed_out(call: ToolCall, seconds: float) -> ToolResult:
    """The deadline came before the tool's end."""
    return ended(call, ToolStatus.TIMEOUT, f'tool "{call.name}" timed out after {rounded(seconds)} s')


def denied(call: ToolCall, gate: str, reason: str, **metadata: object) -> ToolResult:
    """Listed but refused."""
    text = f'tool "{call.name}" is not allowed: {gate}: {reason}'
    return ToolResult(call.id, call.name, text, ToolStatus.DENIED, metadata=metadata or EMPTY)


def limited(call: ToolCall, refusal: Refusal) -> ToolResult:
    """A counter did not admit the call."""
    wait = max(refusal.retry_after_s, 0.001)
    text = f'tool "{call.name}" is limited: {refusal.what}, retry in {rounded(wait)} s'
    return ToolResult(call.id, call.name, text, ToolStatus.LIMITED, retry_after_s=wait)


def unavailable(call: ToolCall, reason: str, **metadata: object) -> ToolResult:
    """Known, but what it needs is away."""
    text = f'tool "{call.name}" is unavailable: {reason}'
    return ToolResult(call.id, call.name, text, ToolStatus.UNAVAILABLE, metadata=metadata or EMPTY)


def ended(call: ToolCall, status: ToolStatus, output: str) -> ToolResult:
    """A result that is only a text."""
    return ToolResult(call.id, call.name, output, status)


def cut(result: ToolResult, limit: int, handle: str | None = None) -> ToolResult:
    """The result with at most `limit` bytes of its text, cut at a character; says what is missing and where it is."""
    whole = result.output.encode()
    if len(whole) <= limit:
        return result
    head = whole[:limit].decode("utf-8", "ignore")
    kept = len(head.encode())
    missing = f"[cut: {len(whole) - kept} of {len(whole)} bytes are missing"
    notice = f"{missing}]" if handle is None else f'{missing}; read them with read_result {{"handle": "{handle}"}}]'
    truncated: dict[str, object] = {"bytes": len(whole), "kept": kept}
    if handle is not None:
        truncated["handle"] = handle
    metadata = {**result.metadata, "truncated": truncated}
    return result._replace(output=f"{head}\n{notice}", structured=None, metadata=metadata)


def rounded(seconds: float) -> str:
    """Seconds for people: at most three digits, no needless zeros."""
    return f"{seconds:.3g}" if seconds < 1000 else f"{seconds:.0f}"


def _unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _place(error: BaseException) -> str:
    """File and line of the innermost frame; not the message, which may hold arguments."""
    trace = error.__traceback__
    if trace is None:
        return "an unknown place"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
