"""Results of calls: the statuses and texts of docs/reference/statuses.md, encoding and size limits."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar, cast

import orjson

from toolplug.catalog.call import (
    EMPTY,
    CallContext,
    ToolCall,
    ToolResult,
    ToolStatus,
    quick_result,
)
from toolplug.catalog.catalog import no_provider
from toolplug.catalog.plan import Plan, Refusal
from toolplug.catalog.validation.compiled import MAX_REPORTED
from toolplug.crashes import CodeOwner, log_crash
from toolplug.errors import InvalidArguments, StoreError, ToolError, ToolUnavailable
from toolplug.signatures.values import as_json, encode_value, why_not_json

MAX_WAITING = 256
"""The most progress reports that wait for a slow client; the oldest is dropped first."""

MAX_PLACES = 3
"""Of invalid arguments, in the log."""
MAX_PLACE = 100
MAX_LOGGED_REASON = 300
"""Characters of a refusal that the log reads: a name of a tool and one sentence."""

_CALLS = logging.getLogger("toolplug.calls")

T = TypeVar("T")
R = TypeVar("R")


class Reports(Generic[T]):
    """Sends the progress reports of one call while it runs. Create it on the event loop."""

    def __init__(self, send: Callable[[T], Awaitable[None]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[T] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()

    def take(self, report: T) -> None:
        """Queue one report, from any thread. Never blocks, and drops the report once the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._on_report, report)
        except RuntimeError:  # the loop was closed while the tool ran on
            return

    async def during(self, execute: Callable[[], Awaitable[R]]) -> R:
        """Run the call, send its reports as they come, and return its result after the last of them."""
        running = asyncio.ensure_future(execute())
        running.add_done_callback(lambda _: self._wake.set())
        try:
            # The end of the call wakes as well, so that a call without reports does not wait for ever.
            while not running.done():
                await self._wake.wait()
                # Before the queue is emptied: a report that comes during a send then wakes the next round.
                self._wake.clear()
                while self._waiting:
                    await self._send(self._waiting.popleft())
            return running.result()
        finally:
            # Does nothing to a call that has ended. One whose reports cannot be sent must not run on.
            running.cancel()

    def _on_report(self, report: T) -> None:
        self._waiting.append(report)
        self._wake.set()


_LOG = logging.getLogger("toolplug.execution")

ASCII_SAFE = 4
"""A text of n characters has at most 4n bytes."""
_SUCCESS = ToolStatus.SUCCESS
CONTRADICTIONS = "contradictions"
"""The attribute of a log record that has the places at which a result contradicts its output type, as text."""
_LOGGED_LINES = 3
"""Of the places at which a result contradicts its output type."""
_NOTHING_MS = 1e-6
"""Milliseconds; a smaller fraction is a floating-point error."""


def success_result(call: ToolCall, value: object, plan: Plan, context: CallContext) -> ToolResult:
    """Return the result of a tool that returned this value. Never raises, even if the value's own code does."""
    # The usual value: an ASCII text has no lone surrogate and needs no repair.
    if type(value) is str and plan.output is None and value.isascii():
        return quick_result(ToolResult, (call.id, call.name, value, _SUCCESS, None, (), EMPTY, None))
    try:
        if isinstance(value, ToolResult):
            result = check_result(call, value, plan.max_result_bytes)
            if result is None:
                # Only for the log, which names the part that is not JSON.
                value = {name: getattr(value, name) for name in ("output", "structured", "parts", "metadata")}
            # The output type is that of the structured content of a success; there is nothing else to check.
            elif result.status is not _SUCCESS or result.structured is None:
                return result
        else:
            result = _read(call, value)
        if result is None:
            return _not_json(call, value, plan, context)
        if plan.output is None:
            return result
        lines = plan.output.contradictions(result.output if isinstance(value, str) else result.structured)
        return _contradicting(call, lines, plan, context) if lines else result
    except BaseException as error:  # noqa: BLE001  a serializer is the tool's own code, as part of `run`
        return error_result(call, error, plan, context)


def _read(call: ToolCall, value: object) -> ToolResult | None:
    if isinstance(value, str):
        # Not `str(value)`: for a member of `class Color(str, Enum)` that is "Color.RED", not its text.
        text = str.__str__(value)
        return ToolResult(call.id, call.name, text) if _is_unicode(text) else None
    json = as_json(value)
    return None if json is None else ToolResult(call.id, call.name, json.text, structured=json.value)


def check_result(call: ToolCall, value: ToolResult, limit: int) -> ToolResult | None:
    """Check a result that a tool or plugin made, and drop structured content and parts over `limit` bytes.

    Returns None for a result that is not JSON. Raises `ValueError` for an unknown status.
    """
    status = ToolStatus(value.status)
    if status is ToolStatus.CANCELLED:
        raise ValueError("a result is not cancelled")
    structured, parts = as_json(value.structured), as_json(value.parts)
    metadata = as_json(dict(value.metadata))
    if structured is None or parts is None or metadata is None or not _is_unicode(value.output):
        return None
    output = value.output
    if not output and value.structured is not None:
        output = structured.text
    # JSON that is the text itself is not dropped here: `cut` shortens it like any other text.
    elif len(structured.text.encode()) > limit:
        output = f"{output}\n[left out: {len(structured.text.encode())} bytes of structured content]"
        structured = structured._replace(value=None)
    if len(parts.text.encode()) > limit:
        output = f"{output}\n[left out: {len(parts.text.encode())} bytes of parts]"
        parts = parts._replace(value=[])
    return ToolResult(
        call.id,
        call.name,
        output,
        status,
        structured.value,
        tuple(cast("list[Mapping[str, object]]", parts.value)),
        cast("Mapping[str, object]", metadata.value) or EMPTY,
        _pause(value.retry_after_s),
    )


def _not_json(call: ToolCall, value: object, plan: Plan, context: CallContext) -> ToolResult:
    """Return the error for a result that is not JSON; log which part of it is not, and where its serializer failed."""
    fault, owner = why_not_json(value), _owner(plan)
    _LOG.error("result of tool %r of %s is not JSON: %s (%s)", plan.ref.name, owner, fault, _ids(call, context))
    if fault.__cause__ is not None:
        what = f"the serializer of the result of tool {plan.ref.name!r}"
        log_crash(what, fault.__cause__, owner, call_id=call.id, request_id=context.request_id)
    return text_result(call, ToolStatus.TOOL_ERROR, f'result of tool "{call.name}" is not JSON')


def _contradicting(call: ToolCall, lines: Sequence[str], plan: Plan, context: CallContext) -> ToolResult:
    """Return the error for a result that is not of the type that its tool declares; log where it is not."""
    said, owner = "; ".join(lines[:_LOGGED_LINES]), _owner(plan)
    text = "result of %r (%s): %s, as its output type says (%s)"
    _LOG.error(text, plan.ref.name, owner, said, _ids(call, context), extra={CONTRADICTIONS: said})
    return text_result(call, ToolStatus.TOOL_ERROR, f'result of tool "{call.name}" does not match its output type')


def _ids(call: ToolCall, context: CallContext) -> str:
    return f"call {call.id}, request {context.request_id}" if context.request_id else f"call {call.id}"


def error_result(call: ToolCall, error: BaseException, plan: Plan, context: CallContext) -> ToolResult:
    """Return the result of a tool that raised: the text of a `ToolError`; other exceptions are only logged."""
    try:
        if isinstance(error, ToolError):
            return _make_tool_error(call, error)
        if isinstance(error, InvalidArguments):
            return _invalid(call, error.lines, plan, context)
        if isinstance(error, ToolUnavailable):
            return _make_unavailable(call, error)
    except BaseException as worse:  # noqa: BLE001  an error's text is the tool's own code, as part of `run`
        error = worse
    log_crash(f"tool {plan.ref.name!r}", error, _owner(plan), call_id=call.id, request_id=context.request_id)
    return text_result(call, ToolStatus.PANIC, f'internal error: builtin tool "{call.name}" panicked')


def _owner(plan: Plan) -> CodeOwner:
    return plan.owner or CodeOwner(plan.ref.source)


def _make_unavailable(call: ToolCall, error: ToolUnavailable) -> ToolResult:
    metadata = as_json(dict(error.metadata))
    known = EMPTY if metadata is None else cast("Mapping[str, object]", metadata.value)
    result = unavailable(call, str(error), code=error.code)
    # The names are the tool's own: as arguments, one such as `call` would be in the way.
    return result._replace(metadata={**known, **result.metadata}, retry_after_s=error.retry_after_s)


def _make_tool_error(call: ToolCall, error: ToolError) -> ToolResult:
    text = readable(str(error))
    metadata = as_json(dict(error.metadata))
    known = EMPTY if metadata is None else cast("Mapping[str, object]", metadata.value)
    return ToolResult(
        call.id,
        call.name,
        text,
        ToolStatus.TOOL_ERROR,
        metadata=known or EMPTY,
        retry_after_s=_pause(error.retry_after_s),
    )


def _invalid(call: ToolCall, lines: Sequence[str], plan: Plan, context: CallContext) -> ToolResult:
    """Return the result for invalid arguments: `lines` are `/pointer: message`, of which the first 20 are shown.

    The log has the caller, the places and the names of missing fields alone, since a message may have a value in it.
    """
    if _CALLS.isEnabledFor(logging.INFO):
        found = list(dict.fromkeys(_place(line) for line in lines if line.startswith("/")))[:MAX_PLACES]
        at, caller = f" at {', '.join(found)}" if found else "", context.principal
        _CALLS.info("%s: invalid arguments%s, by %r of %r", plan.ref.name, at, caller.subject, caller.tenant)
    text = "\n".join([f'invalid arguments for tool "{call.name}"', *lines[:MAX_REPORTED]])
    return text_result(call, ToolStatus.INVALID_ARGUMENTS, readable(text))


def _place(line: str) -> str:
    """Return the place of `/pointer: message`; of a missing field the message too, which has a name of the schema.

    The name of a field that is not in the schema is the caller's, and may be a value.
    """
    place, _, message = line.partition(": ")
    shown = repr(place[:MAX_PLACE])
    if message.endswith('" is not allowed'):
        return f"{shown} (it has no such argument)"
    return f"{shown} ({message[:MAX_PLACE]})" if message.endswith('" is required') else shown


def gone_result(call: ToolCall) -> ToolResult:
    """Return the result for a tool that is hidden or removed: that of an unknown one."""
    return text_result(call, ToolStatus.UNKNOWN_TOOL, no_provider(call.name))


def timed_out(call: ToolCall, seconds: float) -> ToolResult:
    """Return the result of a call that did not end within its time, in seconds."""
    # to the nearest: clocks that count whole milliseconds make a little more of the time that was set
    return text_result(call, ToolStatus.TIMEOUT, f'tool "{call.name}" timed out after {round_up(round(seconds, 3))} s')


DRAINING = "draining"
"""In the metadata of a call that was ended as its source had been switched off for longer than it may drain."""


def outlasted_result(call: ToolCall, seconds: float) -> ToolResult:
    """Return the result of a call that ran on for longer than its switched-off source may drain."""
    result = timed_out(call, seconds)
    text = f"{result.output}: it was stopped, as its provider or host ends"
    return result._replace(output=text, metadata={"code": DRAINING})


def denied_result(call: ToolCall, gate: str, reason: str, **metadata: object) -> ToolResult:
    """Return the refusal of a listed tool; `gate` is the rule that refused it."""
    text = f'tool "{call.name}" is not allowed: {gate}: {reason}'
    return ToolResult(call.id, call.name, text, ToolStatus.DENIED, metadata=metadata or EMPTY)


def refusal_reason(result: ToolResult) -> str:
    """Return why a call was denied or limited, for the log: its gate and the words of that, not what to do then.

    Empty for any other result. The text of another host may be any text.
    """
    refused = result.status in (ToolStatus.DENIED, ToolStatus.LIMITED)
    return result.output[:MAX_LOGGED_REASON].partition(": ")[2].partition("; ")[0] if refused else ""


def limited_result(call: ToolCall, refusal: Refusal) -> ToolResult:
    """Return the refusal of a limiter; `retry_after_s` is at least a millisecond."""
    wait = max(refusal.retry_after_s, 0.001)
    text = f'tool "{call.name}" is limited: {refusal.what}, retry in {round_up(wait)} s'
    return ToolResult(call.id, call.name, text, ToolStatus.LIMITED, retry_after_s=wait)


def unavailable(call: ToolCall, reason: str, **metadata: object) -> ToolResult:
    """Return the result for a known tool whose source is unavailable; `reason` says which."""
    text = f'tool "{call.name}" is unavailable: {reason}'
    return ToolResult(call.id, call.name, text, ToolStatus.UNAVAILABLE, metadata=metadata or EMPTY)


def text_result(call: ToolCall, status: ToolStatus, output: str) -> ToolResult:
    """Return a result with this text and nothing else."""
    return ToolResult(call.id, call.name, output, status)


def cut(result: ToolResult, whole: bytes, limit: int, handle: str | None = None) -> ToolResult:
    """Return the result with at most `limit` bytes of its text, and a notice of what is missing and the handle.

    `whole` is its text as UTF-8, longer than `limit`. The cut is between two characters; structured content is dropped.
    """
    head = whole[:limit].decode("utf-8", "ignore")
    kept = len(head.encode())
    missing = f"[cut: {len(whole) - kept} of {len(whole)} bytes are missing"
    notice = f"{missing}]" if handle is None else f'{missing}; read them with read_result {{"handle": "{handle}"}}]'
    truncated: dict[str, object] = {"bytes": len(whole), "kept": kept}
    if handle is not None:
        truncated["handle"] = handle
    metadata = {**result.metadata, "truncated": truncated}
    return result._replace(output=f"{head}\n{notice}", structured=None, metadata=metadata)


async def within_size(plan: Plan, result: ToolResult, context: CallContext) -> ToolResult:
    """Return the result, cut if it is over the plan's size limit, with a handle if the plan stores such results."""
    if len(result.output) * ASCII_SAFE <= plan.max_result_bytes:
        return result
    whole = result.output.encode()
    if len(whole) <= plan.max_result_bytes:
        return result
    handle = None
    if plan.artifacts is not None:
        try:
            handle = await plan.artifacts.keep(result.output, context)
        except StoreError as error:
            _LOG.error("the store of artifacts fails: %s", error)
    return cut(result, whole, plan.max_result_bytes, handle)


def round_up(seconds: float) -> str:
    """Format seconds: rounded up to a millisecond, then to three digits, without trailing zeros."""
    whole = math.ceil(seconds * 1000 - _NOTHING_MS) / 1000
    return f"{whole:.3g}" if whole < 1000 else f"{whole:.0f}"


def readable(text: str) -> str:
    """Return the text with each lone surrogate replaced by a question mark, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pause(seconds: float | None) -> float | None:
    """Return the seconds if they are finite and not negative, else None."""
    return float(seconds) if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None


REPLAYED = "idempotent_replayed"


def call_answer(result: ToolResult) -> bytes:
    """Return the body of the answer; what is absent (`structured`, `parts`, `retry_after_s`) is left out."""
    # Joined from pieces: the tool's own values may have integers over 64 bits, which orjson does not write.
    head = orjson.dumps(
        {
            "call_id": result.call_id,
            "output": result.output,
            "is_error": result.status is not ToolStatus.SUCCESS,
            "status": result.status,
        }
    )
    parts = [head[:-1], b',"metadata":', _metadata(result)]
    if result.structured is not None:
        parts += [b',"structured":', (encode_value(result.structured) or "null").encode()]
    if result.parts:
        parts += [b',"parts":', (encode_value(result.parts) or "[]").encode()]
    if result.retry_after_s is not None:
        parts += [b',"retry_after_s":', orjson.dumps(result.retry_after_s)]
    parts.append(b"}")
    return b"".join(parts)


def _metadata(result: ToolResult) -> bytes:
    """Return the metadata as JSON, without the mark of a replay, which is a header."""
    metadata = result.metadata
    if not metadata:
        return b"{}"
    return (encode_value({name: value for name, value in metadata.items() if name != REPLAYED}) or "{}").encode()
