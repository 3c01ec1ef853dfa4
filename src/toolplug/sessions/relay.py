"""Calls on their way to a session's plugin and back.

A request is leased to one stream of the plugin: the newest at that time. When that stream ends, the request is sent on
the next one, until it is answered, its caller goes away or its deadline comes. It is answered at most once.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from time import perf_counter
from typing import Literal

import orjson

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.text import counted
from toolplug.errors import ApiError, GoneState
from toolplug.execution.accounting import timestamp
from toolplug.execution.results import ended, readable, unavailable
from toolplug.sessions.events import CANCELLED, PLUGIN, REQUEST, LogEntry
from toolplug.sessions.shared import Background, SessionCallbacks, SessionCounters
from toolplug.signatures.values import encoded

_ID = re.compile("req_[0-9a-f]{24}")
_REMEMBERED = 1_000
_TOLERANCE_S = 0.05
"""Timers of a loop are due by its own clock, which may stand still for one turn and count whole milliseconds."""

_Finish = Literal["answered", "late"]
Ending = GoneState | Literal["host_stopping"]


_MAX_CALL_ID = 256
"""Characters of a caller's id that the application is sent, for its log."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    id: str
    tool: str
    arguments: orjson.Fragment
    deadline: str
    call_id: str
    host_request_id: str
    answer: asyncio.Future[object]
    report: Callable[..., None]
    attempt: int = 0
    stream: str | None = None
    sent: float = field(default=0.0)


class Relay:
    """The waiting requests of one session."""

    def __init__(self, session: SessionCallbacks, background: Background, counters: SessionCounters) -> None:
        self._session = session
        self._background = background
        self._counters = counters
        self._requests: dict[str, _Request] = {}
        self._finished: OrderedDict[str, _Finish] = OrderedDict()
        self._streams: list[str] = []
        self._reserved: dict[str, str] = {}
        self._ended: Ending | None = None

    @property
    def attached(self) -> bool:
        """Is a stream of the plugin open."""
        return bool(self._streams)

    @property
    def stopping(self) -> bool:
        """Does the host stop, so that nobody is asked until the next process does."""
        return self._ended == "host_stopping"

    @property
    def full(self) -> bool:
        """Do as many calls wait as may."""
        return len(self._requests) >= self._session.max_waiting

    def reserve(self, call_id: str, request_id: str | None = None) -> str:
        """An id for the request of a call that is yet to come, which carries it as its own; a new one, or this.

        `call_id` is the one that the caller gave the call.
        """
        request_id = request_id or _new_id()
        self._reserved[request_id] = call_id
        return request_id

    def is_reserved(self, request_id: str) -> bool:
        """Is a call of this id to come, or under way."""
        return request_id in self._reserved

    def release(self, request_id: str) -> None:
        """The call of a reserved id has ended."""
        self._reserved.pop(request_id, None)

    def was_sent(self, request_id: str) -> bool:
        """Has the plugin been sent this request, which still waits."""
        request = self._requests.get(request_id)
        return request is not None and request.attempt > 0

    async def request(self, call: ToolCall, context: CallContext) -> object:
        """Send a call to the plugin and wait for its answer: the target of every tool of the session."""
        gone = self._ended or (None if self._session.reachable else "plugin_gone")
        if gone is not None:
            self._counters.relayed.record(gone, 0.0)
            return _gone(call.name, gone)
        if self.full:
            self._counters.relayed.record("limited", 0.0)
            return _too_many(call, self._session.max_waiting)
        arguments = encoded(call.arguments)
        assert arguments is not None, "arguments have been decoded on their way here"
        loop = asyncio.get_running_loop()
        left = 0.0 if context.deadline is None else context.deadline - loop.time()
        request = _Request(
            id=call.id if call.id in self._reserved and call.id not in self._requests else _new_id(),
            tool=call.name,
            arguments=orjson.Fragment(arguments),
            deadline=timestamp(self._session.now() + left),
            call_id=readable(self._reserved.get(call.id, call.id))[:_MAX_CALL_ID],
            host_request_id=context.request_id,
            answer=loop.create_future(),
            report=context.report,
        )
        self._requests[request.id] = request
        try:
            if self._streams:
                self._send(request)
            return await request.answer
        finally:
            overdue = context.deadline is not None and loop.time() >= context.deadline - _TOLERANCE_S
            self._give_up(request, "timeout" if overdue else "cancelled")

    def attach(self, stream: str) -> None:
        """A stream of the plugin has opened: what waits is sent on it."""
        self._streams.append(stream)
        self.send_waiting()

    def detach(self, stream: str) -> None:
        """A stream has ended, and its leases with it."""
        self._streams.remove(stream)
        self.resend(stream)

    def resend(self, stream: str) -> None:
        """What was sent on this stream did not arrive, or nobody can tell: send it again."""
        for request in self._requests.values():
            if request.stream == stream:
                request.stream = None
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send what has not been sent, or was sent on a stream that has ended."""
        if self._streams:
            for request in [request for request in self._requests.values() if request.stream is None]:
                self._send(request)

    def lose(self, reason: str) -> None:
        """Nobody will answer any more: every caller hears so at once."""
        for request in tuple(self._requests.values()):
            self._settle(request, "late", reason, _gone(request.tool, reason))

    def end(self, reason: Ending) -> None:
        """Nobody will answer any call, those that are still to come neither."""
        self._ended = reason
        self._streams.clear()
        self.lose(reason)

    def answer(self, request_id: str, value: object) -> None:
        """Give the waiting caller this value, or this `ToolResult`. Raises `ApiError`."""
        request = self._waiting(request_id)
        error = isinstance(value, ToolResult) and value.is_error
        self._settle(request, "answered", "error" if error else "answered", value)

    def progress(self, request_id: str, progress: float, total: float | None, message: str | None) -> None:
        """Pass the plugin's progress on to the waiting caller. Raises `ApiError`."""
        self._waiting(request_id).report(progress, total, message)

    def _waiting(self, request_id: str) -> _Request:
        request = self._requests.get(request_id)
        # One of a reserved id may have been sent by an earlier process, whose plugin answers this one.
        sent = request is not None and (request.attempt > 0 or request_id in self._reserved)
        if request is not None and sent and not request.answer.done():
            return request
        finish = "late" if sent else self._finished.get(request_id)
        if finish == "answered":
            raise ApiError("already_answered", "this request has been answered; a request takes one answer")
        if finish == "late":
            message = "the request is no longer pending: its deadline has passed, or its caller has gone"
            raise ApiError("too_late", message)
        message = "no request of this session has that id; answer with the id of the tool-request event"
        raise ApiError("request_not_found", message, param="id")

    def _send(self, request: _Request) -> None:
        """Send it on the newest stream, if that has room. It is never read out of the log: what waits is sent anew."""
        stream = self._streams[-1]
        said: dict[str, object] = {
            "id": request.id,
            "tool": request.tool,
            "arguments": request.arguments,
            "deadline": request.deadline,
            "attempt": request.attempt + 1,
            "callId": request.call_id,
            "hostRequestId": request.host_request_id,
        }
        data = orjson.dumps(said)
        del said["arguments"]
        if self._session.tell(stream, REQUEST, data, orjson.dumps(said)):
            request.stream = stream
            request.attempt += 1
            request.sent = request.sent or perf_counter()

    def _give_up(self, request: _Request, reason: str) -> None:
        """Nobody waits for the answer any more, unless it is there."""
        if self._finished_now(request, "late", reason) and request.attempt:
            data = orjson.dumps({"id": request.id, "reason": reason})
            self._background.start(self._log_cancelled(data), "session-relay")

    async def _log_cancelled(self, data: bytes) -> None:
        await self._session.log(LogEntry(CANCELLED, PLUGIN, data))

    def _settle(self, request: _Request, finish: _Finish, outcome: str, value: object) -> None:
        """Give the waiting caller this value, unless another was given."""
        if self._finished_now(request, finish, outcome) and not request.answer.done():
            request.answer.set_result(value)

    def _finished_now(self, request: _Request, finish: _Finish, outcome: str) -> bool:
        """Let the request wait no more; False where it does not already."""
        if self._requests.pop(request.id, None) is None:
            return False
        self._finished[request.id] = finish
        if len(self._finished) > _REMEMBERED:
            self._finished.popitem(last=False)
        self._counters.relayed.record(outcome, perf_counter() - request.sent if request.sent else 0.0)
        return True


def is_request_id(text: str) -> bool:
    """Could this be the id of a request."""
    return _ID.fullmatch(text) is not None


def _new_id() -> str:
    return f"req_{token_hex(12)}"


_REASONS = {
    "plugin_gone": "plugin_gone: the application that lends it is not connected; open it again",
    "session_ended": "session_ended: its session was ended; create a new one",
    "session_expired": "session_expired: its session has expired; create a new one",
    "host_stopping": "host_stopping: the host is shutting down; try again",
}


def _gone(tool: str, reason: str) -> ToolResult:
    return unavailable(ToolCall("", tool), _REASONS[reason], code=reason)


def _too_many(call: ToolCall, limit: int) -> ToolResult:
    text = f'tool "{call.name}" is limited: {counted(limit, "call")} of its session waiting already, retry in 1 s'
    result = ended(call, ToolStatus.LIMITED, text)
    return result._replace(retry_after_s=1.0, metadata={"code": "too_many_waiting_calls"})
