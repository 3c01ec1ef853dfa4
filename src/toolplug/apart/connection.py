"""The host's end of the socket to the process of a provider: its calls, what they ask of the host, and deadlines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, NamedTuple, Protocol

from toolplug.apart import values
from toolplug.apart.frames import (
    CALL,
    CANCEL,
    GRANT,
    NOTE,
    PIECE_OF,
    RESPONSE,
    RESULT,
    Answer,
    Frame,
    FrameRefused,
    Peer,
)
from toolplug.apart.limits import LATE_S, MAX_UNREAD, MOST_UNREAD, START_BYTES
from toolplug.apart.metrics import FamilyReader, ProcessMetrics
from toolplug.apart.own_site import answer_store
from toolplug.apart.processes import OutputLog, ProcessTarget
from toolplug.apart.values import Head
from toolplug.catalog.call import CallContext, CannotAsk, Principal, ToolCall
from toolplug.catalog.exact_json import dump_json
from toolplug.errors import InvalidJson, StoreMisused, ToolError, ToolUnavailable
from toolplug.execution.idempotency import OUTCOME_UNKNOWN
from toolplug.providers.site import ProviderContext
from toolplug.runtime.running_call import RunningCall
from toolplug.runtime.timers import Timers


class ProcessEnd(Protocol):
    """The process at the other end of a connection."""

    @property
    def last_begun(self) -> int:
        """The number of the last call that the process may have begun."""
        ...

    @property
    def ended_for(self) -> str:
        """Why it was ended, where that is known better than from its connection; else empty."""
        ...

    def kill(self) -> None:
        """End the process at once."""
        ...


class _CallInProcess:
    """A call that the process was sent, until it sends the result; `asked` once it was asked to end the call."""

    __slots__ = ("asked", "context", "late", "running", "surroundings")

    def __init__(self, running: RunningCall, context: CallContext) -> None:
        self.running = running
        self.context = context
        # What the host does for the call counts for its caller, as the store's bytes do: context variables say who.
        self.surroundings: Context = copy_context()
        self.asked = False
        self.late: asyncio.TimerHandle | None = None

    def finish(self, value: object, error: Exception | None) -> None:
        if self.late is not None:
            self.late.cancel()
        self.running.finish(value, error)


class _Caller(NamedTuple):
    principal: Principal
    surroundings: Context


class HostConnection(Peer):
    """Sends calls and requests to the process, and answers what it asks, as the caller of a call that runs there.

    The principal of a call is the host's own: of what a message says, only the number of the call is used.
    """

    def __init__(
        self,
        target: ProcessTarget,
        process: ProcessEnd,
        site: ProviderContext,
        metrics: ProcessMetrics,
        ended: Callable[[HostConnection, str], None],
    ) -> None:
        super().__init__(target.max_frame)
        self.most_unread: float = MOST_UNREAD
        self.closing: bool = False
        self.log: OutputLog = OutputLog(target)
        self._target = target
        self._process = process
        self._site = site
        self._metrics = metrics
        self._ended = ended
        self._calls: dict[int, _CallInProcess] = {}
        self._requests: dict[int, Any] = {}
        self._asking: dict[int, _Caller] = {}
        self._families = FamilyReader()
        self._timers = Timers(self.loop)

    @property
    def load(self) -> int:
        return len(self._calls) + len(self._requests)

    def on_lost(self, reason: str) -> None:
        """End the calls: those that had begun may have had their effect."""
        reason = self._process.ended_for or reason
        calls, self._calls = self._calls, {}
        last_begun = self._process.last_begun
        for number, each in calls.items():
            each.finish(None, _lost_call(number <= last_begun, reason))
        self._timers.close()
        for request in [*self._requests.values()]:
            request.put({"end": {"lost": f"the process of the provider {reason}"}})
        # A process that goes on without its socket would answer nobody.
        self._process.kill()
        self._ended(self, reason)

    def call(self, of: str, name: str, call: ToolCall, context: CallContext) -> RunningCall:
        """Begin a call in the process, which ends with what its tool returned.

        One that is to stop is ended there; one that does not end within a second after its deadline ends the process.
        Its error may be `ToolUnavailable`, or a `ToolError` with the code `outcome_unknown`. Raises `ToolUnavailable`.
        """
        if self.unread > MAX_UNREAD:
            raise ToolUnavailable("its process does not read", code="process_busy", retry_after_s=1.0)
        number = next(self.numbers)
        head = values.encode_context(context, self.loop.time())
        head["id"], head["of"], head["name"], head["call"] = number, of, name, call.id
        self.send(CALL, head, dump_json(call.arguments))
        # No task waits for it: what the process sends ends the call.
        running = RunningCall(self.loop, partial(self._end_call, number), self._timers)
        self._calls[number] = _CallInProcess(running, context)
        return running

    async def ask_start(self, head: Head) -> Head:
        """Ask the process to start its provider, and return what it offers, which may be longer than other messages."""
        self.reader.max_bytes = max(self._target.max_frame, START_BYTES)
        try:
            return (await self.ask("start", head))[0]
        finally:
            self.reader.max_bytes = self._target.max_frame

    async def ask_as(self, asked: str, head: Head, principal: Principal) -> Head:
        """Ask the process something; what it asks meanwhile, it asks as this caller."""
        number = next(self.numbers)
        self._asking[number] = _Caller(principal, copy_context())
        try:
            return (await self.ask(asked, {**head, "work": number}))[0]
        finally:
            self._asking.pop(number, None)

    def open_request(self, request: Any) -> int:
        """Return the number of a request of a route."""
        number = next(self.numbers)
        self._requests[number] = request
        return number

    def close_request(self, number: int) -> None:
        self._requests.pop(number, None)

    def on_frame(self, frame: Frame) -> None:
        """Handle what the process sends of its calls and requests; a number that is not known is of one that ended."""
        kind, head, body = frame
        if kind == RESULT:
            running = self._calls.pop(head["id"], None)
            if running is None:
                return
            try:
                value = values.decode_result(head, body)
            except (InvalidJson, *values.NOT_VALID) as error:
                running.finish(None, values.ProcessCrash(f"a result that is not valid: {error}"))
            else:
                running.finish(value, None)
            return
        if kind == NOTE:
            self._on_note(head)
            return
        request = self._requests.get(head["id"])
        if request is None:
            return
        if kind == RESPONSE:
            request.put(head)
        elif kind == PIECE_OF:
            request.response.put(head, body)
        elif kind == GRANT:
            request.outgoing.grant(int(head["size"]))

    async def answer(self, asked: str, head: Head, body: bytes) -> Answer:
        """Answer what the process asks: of the store, or of the user of a call's caller."""
        work = head.get("work")
        if asked == "user":
            running = self._calls.get(work) if isinstance(work, int) else None
            if running is None:
                raise CannotAsk("the call has ended")
            given = await running.context.ask(str(head["question"]), head["schema"])
            return {"action": given.action, "content": dict(given.content)}, b""
        if asked == "tool":
            return await self._call_tool(work, head, body)
        if asked == "credential":
            running = self._calls.get(work) if isinstance(work, int) else None
            if running is None:
                raise ToolUnavailable("the call has ended", code="call_ended")
            return {"text": await running.context.credential(str(head["refused"]))}, b""
        if asked != "store":
            raise ValueError(f"{asked!r} is nothing that a process can ask")
        caller = self._caller_of(work)
        if caller is None:
            if not self._target.confinement.has_all_tenants:
                raise StoreMisused("records while no call of their tenant runs are not granted: set run.tenants to all")
            principal = Principal(tenant=str(head["tenant"]))
            return await answer_store(self._site.store(principal), head, body, self.reader.max_bytes)
        store = self._site.store(caller.principal)
        # Not a wrapper coroutine with another context: the task is made in that of the call.
        doing = answer_store(store, head, body, self.reader.max_bytes)
        return await caller.surroundings.run(self.loop.create_task, doing)

    async def _call_tool(self, work: object, head: Head, body: bytes) -> Answer:
        """Call a tool of the caller of a call that runs, as this caller."""
        running = self._calls.get(work) if isinstance(work, int) else None
        if running is None:
            raise ToolUnavailable("the call has ended", code="call_ended")
        call = ToolCall(str(head["call_id"]), str(head["name"]), body)
        doing = running.context.tools.execute(call, running.context)
        result = await running.surroundings.run(self.loop.create_task, doing)
        return values.encode_result(values.fit_result(result, self.reader.max_bytes - 4096))

    def _caller_of(self, work: object) -> _Caller | None:
        """Return the caller of a call, request or hook that runs; None for what is done outside of all, or later."""
        if not isinstance(work, int):
            return None
        running = self._calls.get(work)
        if running is not None:
            return _Caller(running.context.principal, running.surroundings)
        request = self._requests.get(work)
        if request is not None:
            return _Caller(request.principal, request.context)
        return self._asking.get(work)

    def _on_note(self, head: Head) -> None:
        match head["note"]:
            case "progress":
                running = self._calls.get(head["id"])
                if running is not None:
                    progress, total, message = head["of"]
                    running.context.report(progress, total, None if message is None else str(message))
            case "families":
                self._families.add(head["families"])
                if not head.get("more"):
                    whole, self._families = self._families, FamilyReader()
                    self._metrics.update(whole.families)
            case "call_hooks":
                self._site.call_hooks.set(bool(head["on"]))
            case "log":
                self.log.write(min(int(head["level"]), logging.CRITICAL), str(head["text"]))
            case other:
                raise FrameRefused(f"a note {str(other)[:40]!r}")

    def _end_call(self, number: int) -> None:
        """Ask the process once to end a call, and end the process if the call misses its deadline."""
        running = self._calls.get(number)
        if running is None or running.asked:
            return
        running.asked = True
        self.send(CANCEL, {"id": number})
        deadline = running.context.deadline
        if deadline is not None:
            late_at = max(deadline, self.loop.time()) + LATE_S
            running.late = self.loop.call_at(late_at, self.fail, "was ended: a call had missed its deadline")


def _lost_call(begun: bool, reason: str) -> Exception:
    if begun:
        text = f"the outcome of the call is unknown: it may have run, and the process of its provider {reason}"
        return ToolError(text, metadata={"code": OUTCOME_UNKNOWN})
    return ToolUnavailable(f"the process of its provider {reason}", code="restarting", retry_after_s=0.1)
