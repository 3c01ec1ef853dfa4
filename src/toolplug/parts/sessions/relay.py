"""The relay of calls to a session's plugin.

A request is leased to one stream of the plugin: the newest at that time. When that stream ends, the request is sent on
the next one, until it is answered, its caller leaves or its deadline comes. It is answered at most once.

In a store that several processes share, each request has records (`peers/shared_records.py`): the process with the
newest stream sends it, and any process takes the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from time import perf_counter
from typing import Literal

import orjson

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.exact_json import dump_json
from toolplug.catalog.plan import Refusal
from toolplug.catalog.text import pluralize
from toolplug.config.units import timestamp
from toolplug.errors import ApiError, GoneState, StoreError
from toolplug.execution.results import limited_result, readable, unavailable
from toolplug.parts.sessions.peers.shared_records import CallEnd, RecordedProgress
from toolplug.parts.sessions.shared import SessionCallbacks, SessionCounters, SessionTasks
from toolplug.parts.sessions.streams.events import CANCELLED, PLUGIN, REQUEST, LogEntry

_ID = re.compile("req_[0-9a-f]{24}")
# Of each session: a late answer is told apart from an unknown id for that long.
_REMEMBERED = 1_000
_TOLERANCE_S = 0.05
"""The loop's clock may not advance for one turn and may count whole milliseconds, so timers can fire early."""

_Finish = Literal["answered", "late"]
Ending = GoneState | Literal["host_stopping"]

_RETRY_S = 5.0
"""The `retry_after_s` of a call that was not sent to the plugin; when it comes back is unknown."""

_MAX_CALL_ID = 256
"""Characters of a caller's id that are sent to the application, for its log."""

LIMITED = "limited"
CALLER_GONE = "caller_gone"


@dataclass(slots=True, kw_only=True, eq=False)
class RelayedRequest:
    """A waiting request. `answer` and `report` are those of its caller; None if that waits in another process.

    `caller` is the name of that other process, if the request is to end with it. `until` is the deadline, in seconds on
    the store's clock. It is sent once it is `published`: an answer ahead of its record would be refused as unknown.
    """

    id: str
    tool: str
    arguments: bytes
    until: float
    call_id: str
    host_request_id: str
    trace_context: Mapping[str, str]
    answer: asyncio.Future[object] | None = None
    report: Callable[..., None] | None = None
    caller: str | None = None
    published: bool = False
    attempt: int = 0
    stream: str | None = None
    sent: float = field(default=0.0)
    turn: int | None = None


class Relay:
    """The waiting requests of one session, in this process: those of its callers, and those that it sends for others.

    `elsewhere` is True while another process has a newer stream of the plugin, which gets the requests.
    """

    def __init__(self, session: SessionCallbacks, background: SessionTasks, counters: SessionCounters) -> None:
        self.elsewhere: bool = False
        self._session = session
        self._background = background
        self._counters = counters
        self._requests: dict[str, RelayedRequest] = {}
        self._finished: OrderedDict[str, _Finish] = OrderedDict()
        self._streams: list[str] = []
        self._reserved: dict[str, str] = {}
        self._ended: Ending | None = None

    @property
    def is_attached(self) -> bool:
        """True while this process has an open stream of the plugin."""
        return bool(self._streams)

    @property
    def streams(self) -> tuple[str, ...]:
        """The open streams of the plugin in this process, the oldest first."""
        return tuple(self._streams)

    @property
    def delivers(self) -> bool:
        """True while this process sends the session's requests."""
        return bool(self._streams) and not self.elsewhere

    @property
    def stopping(self) -> bool:
        """True if the host is shutting down, so that the next process must send the requests."""
        return self._ended == "host_stopping"

    @property
    def full(self) -> bool:
        """True if the maximum of calls is waiting."""
        return len(self._requests) >= self._session.max_waiting

    def reserve(self, call_id: str, request_id: str | None = None) -> str:
        """Return this or a new request id, for a later call that has it as its id; `call_id` is the caller's own id."""
        request_id = request_id or _new_id()
        self._reserved[request_id] = call_id
        return request_id

    def release(self, request_id: str) -> None:
        """Release a reserved id, as its call has ended."""
        self._reserved.pop(request_id, None)

    def was_sent(self, request_id: str) -> bool:
        """Return True if this request has been sent to the plugin and still waits."""
        request = self._requests.get(request_id)
        return request is not None and request.attempt > 0

    async def is_sent(self, request_id: str) -> bool:
        """Return True if this request has been sent to the plugin, by any process. Raises `StoreError`."""
        return self.was_sent(request_id)

    async def request(self, call: ToolCall, context: CallContext) -> object:
        """Send a call to the plugin and return its answer; this is the target of every tool of the session."""
        gone = self._ended or (None if self._session.reachable else "plugin_gone")
        if gone is not None:
            self._counters.relayed.record(gone, 0.0)
            return _gone_result(call.name, gone, sent=False)
        if self.full:
            self._counters.relayed.record("limited", 0.0)
            what = f"{pluralize(self._session.max_waiting, 'call')} of its session waiting already"
            return limited_result(call, Refusal(what, 1.0))._replace(metadata={"code": "too_many_waiting_calls"})
        loop = asyncio.get_running_loop()
        left = 0.0 if context.deadline is None else context.deadline - loop.time()
        # Only ids that were reserved here count: another caller's id must not reach somebody else's request.
        earlier = self._requests.get(call.id) if call.id in self._reserved else None
        # A queued call that this process has sent for another one, which has ended since.
        taken_over = earlier is not None and earlier.answer is None
        request = RelayedRequest(
            id=call.id if call.id in self._reserved and (earlier is None or taken_over) else _new_id(),
            tool=call.name,
            arguments=dump_json(call.arguments),
            until=self._session.now() + left,
            call_id=readable(self._reserved.get(call.id, call.id))[:_MAX_CALL_ID],
            host_request_id=context.request_id,
            trace_context=context.trace_context,
            # Bound to a name as well, since the request may be given up, and its field cleared, while this waits.
            answer=(answer := loop.create_future()),
            report=context.report,
        )
        if earlier is not None and taken_over:
            request.attempt, request.stream = earlier.attempt, earlier.stream
        # Before anything is awaited: the answer may come as soon as another process has read the record.
        self._requests[request.id] = request
        try:
            await self._publish(request)
            request.published = True
            # All three may have changed while the record was written.
            if self.delivers and request.stream is None and not answer.done():
                self._send(request)
            return await answer
        except StoreError:
            return unavailable(call, "its store cannot answer", code="store_unavailable")
        # The plugin may have answered in another process in the same moment; then the answer counts, not the
        # cancellation.
        except asyncio.CancelledError:
            accepted = await self._end_unless_accepted(request, _reason(context))
            if accepted is None:
                raise
            return accepted.value
        finally:
            self._give_up(request, _reason(context))

    def attach(self, stream: str) -> None:
        """Add an open stream of the plugin, the newest of all, and send the waiting requests on it."""
        self._streams.append(stream)
        self.elsewhere = False
        self.send_waiting()

    def detach(self, stream: str) -> None:
        """Remove an ended stream, and send its requests again."""
        self._streams.remove(stream)
        self.resend(stream)

    def resend(self, stream: str) -> None:
        """Send the requests of this stream again, as they may not have arrived."""
        for request in self._requests.values():
            if request.stream == stream:
                # The attempt counts on: the plugin can tell a repetition by it.
                request.stream = None
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send the requests that have no stream, because it was full or has ended."""
        if self.delivers:
            # A list: sending may fail and end requests.
            waiting = [one for one in self._requests.values() if one.published and one.stream is None]
            for request in waiting:
                self._send(request)

    def lose(self, reason: str) -> None:
        """Answer every waiting call as unavailable for this reason."""
        for request in tuple(self._requests.values()):
            if self._give_answer(request, "late", reason, self._answer_gone(request, reason)):
                self._end_record(request, reason)

    def end(self, reason: Ending) -> None:
        """Answer every waiting call, and all later ones, as unavailable for this reason."""
        self._ended = reason
        self._streams.clear()
        self.lose(reason)

    def answer(self, request_id: str, value: object) -> None:
        """Give the waiting caller this value or `ToolResult`. Raises `ApiError` if the request does not wait."""
        request = self._waiting(request_id)
        error = isinstance(value, ToolResult) and value.is_error
        self._give_answer(request, "answered", "error" if error else "answered", value)

    def progress(self, request_id: str, progress: float, total: float | None, message: str | None) -> None:
        """Report the plugin's progress to the waiting caller. Raises `ApiError` if the request does not wait."""
        report = self._waiting(request_id).report
        if report is not None:
            report(progress, total, message)

    def waits(self, request_id: str) -> bool:
        """Return True if the request waits in this process, for its caller or to be answered by its stream."""
        return request_id in self._requests

    def has_ended(self, request_id: str) -> bool:
        """Return True if the request has ended for this process, which remembers the last ones."""
        return request_id in self._finished

    @property
    def of_callers(self) -> tuple[str, ...]:
        """The ids of the requests whose callers wait in this process."""
        return tuple(request.id for request in self._requests.values() if request.answer is not None)

    def note_end(self, request_id: str, end: CallEnd) -> None:
        """Take note of the end of a request, in whichever process it came about."""
        request = self._requests.get(request_id)
        if request is None:
            return
        if end.late is None:
            failed = isinstance(end.value, ToolResult) and end.value.is_error
            self._give_answer(request, "answered", "error" if failed else "answered", end.value)
            return
        self._give_answer(request, "late", end.late, self._answer_gone(request, end.late))
        if request.answer is None:
            self._log_cancelled(request, end.late)

    async def take_answer(self, request_id: str, value: object) -> None:
        """Give the caller, in whichever process it waits, this value or `ToolResult`.

        Raises `ApiError` if the request does not wait, and `StoreError`.
        """
        self.answer(request_id, value)

    async def take_progress(self, request_id: str, progress: RecordedProgress) -> None:
        """Report progress to the caller, in whichever process it waits. Raises `ApiError` and `StoreError`."""
        self.progress(request_id, *progress)

    async def _publish(self, request: RelayedRequest) -> None:
        """Write what other processes need of a request. Raises `StoreError`."""

    def _may_have_arrived(self, request: RelayedRequest) -> bool:
        """Return False if no process has sent the request."""
        return request.attempt > 0

    def _answer_gone(self, request: RelayedRequest, reason: str) -> ToolResult:
        return _gone_result(request.tool, reason, sent=self._may_have_arrived(request))

    async def _end_unless_accepted(self, request: RelayedRequest, reason: str) -> CallEnd | None:
        """End a request for this reason, unless another process has accepted an answer to it: return that then."""
        return None

    def _end_record(self, request: RelayedRequest, reason: str) -> None:
        """End the request for all processes, in the background."""

    def _waiting(self, request_id: str) -> RelayedRequest:
        request = self._requests.get(request_id)
        # One of a reserved id may have been sent by an earlier process, whose plugin answers this one.
        # An answer to a request that was never sent is a guess of an id, and is refused.
        sent = request is not None and (request.attempt > 0 or request_id in self._reserved)
        if request is not None and sent and request.answer is not None and not request.answer.done():
            return request
        finish = "late" if sent else self._finished.get(request_id)
        if finish == "answered":
            raise already_answered()
        raise too_late() if finish == "late" else not_found()

    def _send(self, request: RelayedRequest) -> None:
        """Send the request on the newest stream, if that has room; the arguments are not logged."""
        stream = self._streams[-1]
        arguments = orjson.Fragment(request.arguments)
        said: dict[str, object] = {
            "id": request.id,
            "tool": request.tool,
            "arguments": arguments,
            "args": arguments,  # as specs/dynamic-tool-registration.md has it
            "deadline": timestamp(request.until),
            "attempt": (attempt := self._times_sent(request, stream) + 1),
            "callId": request.call_id,
            "hostRequestId": request.host_request_id,
            **request.trace_context,
        }
        data = orjson.dumps(said)
        del said["arguments"], said["args"]
        # False where the stream is full: the request waits until it has been read (`has_room`).
        if self._session.tell(stream, REQUEST, data, orjson.dumps(said)):
            request.stream = stream
            request.attempt = attempt
            # The first time of sending counts for the metric, as the caller has waited since then.
            request.sent = request.sent or perf_counter()

    def _times_sent(self, request: RelayedRequest, stream: str) -> int:
        """Return how often the request may have been sent before, on other streams than this one too."""
        return request.attempt

    def _give_up(self, request: RelayedRequest, reason: str) -> None:
        """End a request without an answer, and log the cancellation if the plugin has the request."""
        if self._finished_now(request, "late", reason):
            self._end_record(request, reason)
            self._log_cancelled(request, reason)

    def _log_cancelled(self, request: RelayedRequest, reason: str) -> None:
        """Log the cancellation of a request that this process has sent to the plugin."""
        if request.attempt:
            data = orjson.dumps({"id": request.id, "reason": reason})
            self._background.start(self._session.log(LogEntry(CANCELLED, PLUGIN, data)), "session-relay")

    def _give_answer(self, request: RelayedRequest, finish: _Finish, outcome: str, value: object) -> bool:
        """Give the waiting caller, if it is in this process, this value; False if the request has ended before."""
        if not self._finished_now(request, finish, outcome):
            return False
        if request.answer is not None and not request.answer.done():
            request.answer.set_result(value)
        return request.answer is not None

    def _finished_now(self, request: RelayedRequest, finish: _Finish, outcome: str) -> bool:
        """Remove and count the request; return False if it has ended before."""
        if self._requests.pop(request.id, None) is None:
            return False
        self._finished[request.id] = finish
        # The oldest goes; ids are random, so that a forgotten one is only "not found".
        if len(self._finished) > _REMEMBERED:
            self._finished.popitem(last=False)
        if request.answer is not None:
            self._counters.relayed.record(outcome, perf_counter() - request.sent if request.sent else 0.0)
        return True


def _reason(context: CallContext) -> str:
    """Return why a call that is cancelled now gets no answer."""
    if context.deadline is None:
        return "cancelled"
    # A deadline and a caller that leaves both arrive as a cancellation; the time tells them apart.
    overdue = asyncio.get_running_loop().time() >= context.deadline - _TOLERANCE_S
    return "timeout" if overdue else "cancelled"


def is_request_id(text: str) -> bool:
    """Return True for text in the format of request ids."""
    return _ID.fullmatch(text) is not None


def _new_id() -> str:
    return f"req_{token_hex(12)}"


def already_answered() -> ApiError:
    return ApiError("already_answered", "this request has been answered; a request takes one answer")


def too_late() -> ApiError:
    return ApiError("too_late", "the request is no longer pending: its deadline has passed, or its caller has gone")


def not_found() -> ApiError:
    message = "no request of this session has that id; answer with the id of the tool-request event"
    return ApiError("request_not_found", message, param="id")


_REASONS = {
    LIMITED: "limited: the process that its application is connected to has too many waiting calls; retry later",
    CALLER_GONE: "caller_gone: this process was paused or could not reach its store; try again",
    "plugin_gone": "plugin_gone: the application that lends it is not connected; open it again",
    "session_ended": "session_ended: its session was ended; create a new one",
    "session_expired": "session_expired: its session has expired; create a new one",
    "host_stopping": "host_stopping: the host is shutting down; try again",
}


def _gone_result(tool: str, reason: str, *, sent: bool) -> ToolResult:
    """Return the answer to a call that gets none of the plugin; one that was not `sent` may be repeated."""
    result = unavailable(ToolCall("", tool), _REASONS.get(reason, reason), code=reason)
    return result if sent else result._replace(retry_after_s=_RETRY_S)
