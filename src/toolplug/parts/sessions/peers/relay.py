"""The relay of a session in a store that several processes share.

Each request has two records (`shared_records.py`). The process of its caller writes the first one; the process with the
newest stream of the plugin sends it, after each change of the streams perhaps a second time; any process takes the
answer and writes the second one, which only the first of all ends can do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import perf_counter

from toolplug.errors import StoreError
from toolplug.parts.sessions.peers.shared_records import CallEnd, CallRecords, RecordedProgress, StoredCall
from toolplug.parts.sessions.relay import (
    CALLER_GONE,
    LIMITED,
    Relay,
    RelayedRequest,
    already_answered,
    not_found,
    too_late,
)
from toolplug.parts.sessions.shared import SessionCallbacks, SessionCounters, SessionTasks

LATE_S = 0.25
"""Seconds after the deadline that a call waits for the store: an answer that a process has accepted is used."""
_STOPPED = ("cancelled", "host_stopping")
"""Ends of requests that come from the end of their process."""


class SharedRelay(Relay):
    """A relay whose requests other processes send and answer."""

    def __init__(
        self, session: SessionCallbacks, background: SessionTasks, counters: SessionCounters, calls: CallRecords
    ) -> None:
        super().__init__(session, background, counters)
        self._calls = calls
        self._turns = 0
        self._known: frozenset[str] = frozenset()

    @property
    def delivers(self) -> bool:
        """True while this process sends the session's requests."""
        return super().delivers and self._calls.valid

    async def is_sent(self, request_id: str) -> bool:
        """Return True if this request has been sent to the plugin, by any process. Raises `StoreError`."""
        if self.was_sent(request_id) or not self._session.is_attached:
            return self.was_sent(request_id)
        return await self._calls.read(self._session.code, request_id) is not None

    def adopt_streams(self, turns: int, streams: Iterable[str]) -> None:
        """Take over how often another stream of the plugin became the newest, and which are open in all processes."""
        self._turns, self._known = turns, frozenset(streams)

    async def take_answer(self, request_id: str, value: object) -> None:
        """Give the caller, in whichever process it waits, this value or `ToolResult`.

        Raises `ApiError` if the request does not wait, and `StoreError`.
        """
        given = CallEnd(value)
        end = await self._calls.end(self._session.code, request_id, given, await self._until(request_id))
        if end is not given:
            raise already_answered() if end.late is None else too_late()
        self.note_end(request_id, end)

    async def take_progress(self, request_id: str, progress: RecordedProgress) -> None:
        """Report progress to the caller, in whichever process it waits. Raises `ApiError` and `StoreError`."""
        request = self._requests.get(request_id)
        if request is not None and request.report is not None:
            request.report(*progress)
            return
        call = await self._calls.read(self._session.code, request_id)
        if call is None:
            raise not_found()
        end = await self._calls.end_of(self._session.code, request_id)
        if end is not None:
            raise already_answered() if end.late is None else too_late()
        await self._calls.report(self._session.code, request_id, call.caller, progress)

    def note_progress(self, request_id: str, progress: RecordedProgress) -> None:
        """Take note of progress that another process has passed on."""
        request = self._requests.get(request_id)
        if request is not None and request.report is not None:
            request.report(*progress)

    def deliver(self, request_id: str, call: StoredCall) -> None:
        """Send a request whose caller waits in another process, unless it was sent before."""
        if request_id in self._requests or self._ended is not None:
            return
        request = RelayedRequest(
            id=request_id,
            tool=call.tool,
            arguments=call.arguments,
            until=call.deadline,
            call_id=call.call_id,
            host_request_id=call.request_id,
            trace_context=call.trace,
            caller=None if call.queued else call.caller,
            turn=call.turn,
            published=True,
        )
        if self.full:
            self._end_record(request, LIMITED)
            return
        self._requests[request_id] = request
        if self.delivers:
            self._send(request)

    def lose(self, reason: str) -> None:
        """Answer every waiting call as unavailable for this reason, but for those whose answer has been accepted."""
        if reason == "host_stopping":
            super().lose(reason)
            return
        for request in tuple(self._requests.values()):
            if request.answer is None:
                self._finished_now(request, "late", reason)
            else:
                self._background.finish(self._lose(request, reason), "session-relay")

    def end_orphans(self) -> None:
        """End the requests of other processes that run no more."""
        for request in [request for request in self._requests.values() if request.answer is None]:
            if self._calls.is_orphaned(request.caller, request.until):
                self._end_record(request, CALLER_GONE)
                self.note_end(request.id, CallEnd(None, CALLER_GONE))

    async def publish_again(self) -> None:
        """Write the requests of this process's callers again, as it has a new name. Raises `StoreError`."""
        for request_id in self.of_callers:
            request = self._requests.get(request_id)
            if request is not None:
                await self._publish(request)

    async def _publish(self, request: RelayedRequest) -> None:
        """Write the record of a request; if the request of an earlier process has ended, that is its end."""
        request.sent = request.sent or perf_counter()
        if request.turn is None:
            # Without an open stream the next one is the first that can send it.
            request.turn = self._turns if self._known else self._turns + 1
        call = StoredCall(
            tool=request.tool,
            arguments=request.arguments,
            deadline=request.until,
            call_id=request.call_id,
            request_id=request.host_request_id,
            trace=dict(request.trace_context),
            caller=self._calls.caller,
            queued=request.id in self._reserved,
            turn=request.turn,
        )
        await self._calls.publish(self._session.code, request.id, call)
        if request.id in self._reserved:
            end = await self._calls.end_of(self._session.code, request.id)
            if end is not None:
                self.note_end(request.id, end)

    def _may_have_arrived(self, request: RelayedRequest) -> bool:
        """Return True: a process that sends the request does not tell the others that it has."""
        return True

    def _times_sent(self, request: RelayedRequest, stream: str) -> int:
        """Return how often the request may have been sent before: in each turn of a stream since it was published.

        This is the newest stream; where it has just been opened, the record does not count its turn yet.
        """
        turn = self._turns + (stream not in self._known)
        earlier = 0 if request.turn is None else turn - request.turn
        return max(request.attempt, earlier)

    async def _end_unless_accepted(self, request: RelayedRequest, reason: str) -> CallEnd | None:
        """End a request for this reason, unless a process has accepted an answer to it: return that then."""
        if request.id in self._reserved and reason in _STOPPED:
            return None
        try:
            end = await self._first_end(request, reason)
        except StoreError:
            return None
        if end.late is None:
            self.note_end(request.id, end)
            return end
        # This process may have been told of the end that it has just written, before the store has answered.
        if self._finished_now(request, "late", end.late) or end.late == reason:
            self._log_cancelled(request, end.late)
        return None

    async def _lose(self, request: RelayedRequest, reason: str) -> None:
        try:
            async with asyncio.timeout(LATE_S):
                end = await self._first_end(request, reason)
        except (StoreError, TimeoutError):
            end = CallEnd(None, reason)
        self.note_end(request.id, end)

    async def _first_end(self, request: RelayedRequest, reason: str) -> CallEnd:
        """Return how a request has ended: for this reason, unless something came first. Raises `StoreError`."""
        late = self._calls.end(self._session.code, request.id, CallEnd(None, reason), request.until)
        return await self._background.unbroken(late, "session-relay")

    async def _until(self, request_id: str) -> float:
        """Return the deadline of a request. Raises `ApiError` if there is none of this id, and `StoreError`."""
        request = self._requests.get(request_id)
        if request is not None:
            return request.until
        call = await self._calls.read(self._session.code, request_id)
        if call is None:
            raise not_found()
        return call.deadline

    def _end_record(self, request: RelayedRequest, reason: str) -> None:
        """End the request for all processes, in the background."""
        if request.id in self._reserved and reason in _STOPPED:
            return  # a queued call, which another process runs
        self._background.finish(self._ended_late(request, reason), "session-relay")

    async def _ended_late(self, request: RelayedRequest, reason: str) -> None:
        await self._calls.end(self._session.code, request.id, CallEnd(None, reason), request.until)
