"""An entered session of an application: its event stream, its tools and the requests that it answers.

Keeps the host's list of tools equal to that of the application.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial

from toolplug.catalog.call import CallContext
from toolplug.catalog.trace_context import trace_context
from toolplug.client.events import EventStream, ToolCancelled, ToolRequest
from toolplug.client.host_requests import Backoff, HostRequests
from toolplug.client.session_requests import Definitions, RegistrationInfo, SessionRequests, difference
from toolplug.client.tool import Answer, Definition, Progress, Tool, answer
from toolplug.errors import HostError, HostRefused, SessionOver

MAX_REASON = 1_000
"""Characters that a host accepts."""

_STALE = frozenset({"revision_mismatch", "not_registered", "tool_exists", "tool_not_found"})
"""Refusals where the host's tools are not those that this client assumes."""
_UNKNOWN = "unknown"
_UNFIT = frozenset({"invalid_tool"})
"""Refusals of a whole update for one tool; a registration takes the other tools and names the refused ones."""


class ToolSync:
    """Sends changes of `tools`, the application's own mapping, after each call of `schedule_update`.

    Changes within `gather_s` of the backoff are one update. It contains only the difference from the host's tools;
    without one, nothing is sent.
    """

    def __init__(
        self, session: SessionRequests, registration: RegistrationInfo, tools: Mapping[str, Tool], backoff: Backoff
    ) -> None:
        self._session = session
        self._registration = registration
        self._tools = tools
        self._backoff = backoff
        self._has: Definitions | None = None
        self._revision = 0
        self._refused: dict[str, tuple[Definition, str]] = {}
        self._reasons: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._settled: asyncio.Future[None] | None = None
        self._over: HostError | None = None

    @property
    def refusals(self) -> dict[str, str]:
        """The tools that the host has refused, each with the reason."""
        return {name: self._refused[name][1] for name, tool in self._tools.items() if self._is_refused(tool)}

    async def begin(self, *, joins: bool) -> None:
        """Send all tools; with `joins`, only the difference from the host's tools. Raises `HostError`."""
        if joins:
            await self._read()
        await self._push()

    def schedule_update(self, reason: str) -> None:
        """Schedule an update for this reason; the tools have changed."""
        self._reasons[reason] = None
        if self._settled is None and self._over is None:
            self._settled = asyncio.get_running_loop().create_future()
        self._changed.set()

    async def wait_until_sent(self) -> None:
        """Wait until the host has all changes so far. Raises `HostRefused` if it refuses them."""
        if self._over is not None:
            raise self._over
        if self._settled is not None:
            await asyncio.shield(self._settled)

    async def run(self) -> None:
        """Send changes until cancelled. Raises `SessionOver`."""
        while True:
            await self._changed.wait()
            # Before the clear: what changes in this time goes with the same update.
            await asyncio.sleep(self._backoff.gather_s)
            self._changed.clear()
            error = await self._push_with_retries()
            # Else a change came while this one was sent, and those who wait for it go on waiting.
            if not self._changed.is_set():
                self._end_wait(error)

    def end(self, over: HostError) -> None:
        """Stop sending; `settled` raises this error from then on."""
        self._over = over
        self._end_wait(over)

    async def _push_with_retries(self) -> HostRefused | None:
        try:
            await self._backoff.retry(self._push)
        except SessionOver:
            raise
        except HostRefused as refusal:
            _LOG.error("the host refuses a change of the tools: %s: %s", refusal.code, refusal)
            return refusal
        return None

    def _end_wait(self, error: HostError | None) -> None:
        settled, self._settled = self._settled, None
        if settled is None:
            return
        if error is None:
            settled.set_result(None)
        else:
            settled.set_exception(error)
            settled.exception()  # marks it as retrieved: nothing has to wait for it

    async def _push(self) -> None:
        """Send the difference; read the host's tools again if they are stale, and register all if that fails."""
        refusal = await self._update()
        if refusal in _STALE:
            await self._read()
            refusal = await self._update()
        if refusal is not None:
            await self._register()

    async def _update(self) -> str | None:
        """Send the difference; return the code of a refusal that `_push` can work around, else None."""
        if self._has is None:
            return _UNKNOWN
        wanted = {name: tool.definition for name, tool in self._tools.items() if not self._is_refused(tool)}
        changes = difference(self._has, wanted)
        reasons = tuple(self._reasons)
        if changes:
            try:
                updated = await self._session.update(changes, "; ".join(reasons)[:MAX_REASON], self._revision)
            except HostRefused as error:
                if error.code in _STALE | _UNFIT:
                    return error.code
                raise
            self._has, self._revision = wanted, updated.revision
        self._finish(reasons)
        return None

    async def _register(self) -> None:
        wanted = {name: tool.definition for name, tool in self._tools.items()}
        reasons = tuple(self._reasons)
        answer = await self._session.register(self._registration, list(wanted.values()))
        failed = {tool.tool_name: tool.error for tool in answer.failed_tools if tool.tool_name in wanted}
        for name, error in failed.items():
            _LOG.error("the host does not take the tool %r: %s", name, error)
        self._refused = {name: (wanted[name], error) for name, error in failed.items()}
        self._has = {name: definition for name, definition in wanted.items() if name not in failed}
        self._revision = answer.revision
        self._finish(reasons)

    async def _read(self) -> None:
        """Read the host's tools; treat them as none if another application has registered."""
        found = await self._session.metadata()
        info = {"pluginType": found.plugin_type, "capabilities": found.capabilities, "environment": found.environment}
        known = found.registered and info == self._registration.wire()
        self._has = {tool.name: tool.definition() for tool in found.tools} if known else None
        self._revision = found.revision

    def _is_refused(self, tool: Tool) -> bool:
        refused = self._refused.get(tool.name)
        # A tool that was lent again under this name has another definition, and is tried again.
        return refused is not None and refused[0] is tool.definition

    def _finish(self, reasons: tuple[str, ...]) -> None:
        for reason in reasons:
            # Only those that were sent: others may have come meanwhile.
            del self._reasons[reason]


_LOG = logging.getLogger("toolplug.client")

REMEMBERED = 1_024
_NOT_AWAITED = frozenset({"already_answered", "too_late", "request_not_found"})


class RunningRequests:
    """Runs each request once, however often it is sent, and repeats its answer until the host has it.

    At most `max_running` functions run at once; others wait in order.
    """

    def __init__(
        self, tools: Mapping[str, Tool], session: SessionRequests, code: str, backoff: Backoff, max_running: int
    ) -> None:
        self._tools = tools
        self._session = session
        self._code = code
        self._backoff = backoff
        self._places = asyncio.Semaphore(max_running)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answered: OrderedDict[str, None] = OrderedDict()

    def take(self, request: ToolRequest, group: asyncio.TaskGroup) -> None:
        """Start the request in a task of `group`, unless it was started before."""
        if request.id in self._tasks or request.id in self._answered:
            return
        task = group.create_task(self._run(request), name=f"toolplug {request.tool}")
        self._tasks[request.id] = task
        task.add_done_callback(lambda _: self._forget(request.id))

    def cancel(self, request_id: str) -> None:
        """Cancel the function, if it is asynchronous, and send no answer."""
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()

    async def _run(self, request: ToolRequest) -> None:
        try:
            async with asyncio.timeout(self._backoff.call_s):
                result = await self._answer(request)
                await self._backoff.retry(partial(self._send, request, result))
        except TimeoutError:
            _LOG.warning("tool %r was not answered within %.0f s", request.tool, self._backoff.call_s)

    async def _answer(self, request: ToolRequest) -> Answer:
        tool = self._tools.get(request.tool)
        if tool is None:
            return {"error": f'the application has no tool "{request.tool}" any more'}
        progress = Progress(partial(self._session.send, request.id))
        context = CallContext(
            session=self._code,
            report=progress.report,
            request_id=request.host_request_id,
            trace_context=trace_context(request.traceparent, request.tracestate),
        )
        async with asyncio.TaskGroup() as group:
            reporting = group.create_task(progress.run(), name=f"toolplug progress of {request.tool}")
            result = await answer(tool, request.arguments, context, self._places, call_id=request.call_id)
            reporting.cancel()
        return result

    async def _send(self, request: ToolRequest, result: Answer) -> None:
        try:
            await self._session.send(request.id, result)
        except SessionOver:
            raise
        except HostRefused as error:
            if error.retry_after_s is not None:
                raise
            _LOG.warning("the answer of tool %r was refused: %s: %s", request.tool, error.code, error)
            if "result" in result and error.code not in _NOT_AWAITED:
                await self._send(request, {"error": f"the host does not take the result: {error}"})

    def _forget(self, request_id: str) -> None:
        # Remembered next: a host that has not seen the answer may send the request again, and a tool must not run
        # twice.
        del self._tasks[request_id]
        self._answered[request_id] = None
        if len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)


_READERS: Mapping[str, Callable[[bytes], ToolRequest | ToolCancelled]] = {
    "tool-request": ToolRequest.model_validate_json,
    "tool-cancelled": ToolCancelled.model_validate_json,
}


class OpenSession:
    """A session: `host` sends the session's token; `tools` are those that the application lends."""

    def __init__(
        self,
        host: HostRequests,
        code: str,
        registration: RegistrationInfo,
        tools: Mapping[str, Tool],
        backoff: Backoff,
        max_running: int,
    ) -> None:
        requests = SessionRequests(host, code)
        self.tools: ToolSync = ToolSync(requests, registration, tools, backoff)
        self._stream = EventStream(host, requests.stream, _READERS, backoff)
        self._running = RunningRequests(tools, requests, code, backoff, max_running)

    async def run(self) -> None:
        """Run until cancelled. Raises `HostError` when the session has ended; running functions are cancelled."""
        over: HostError = SessionOver("left", "the application has left its session")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.tools.run(), name="toolplug tool sync")
                await self._listen(group)
        # `except*`: a task group raises a group, even of one error.
        except* HostError as errors:
            over = _first(errors)
        finally:
            self.tools.end(over)
        raise over

    async def _listen(self, group: asyncio.TaskGroup) -> None:
        async with aclosing(self._stream.events()) as events:
            async for event in events:
                if isinstance(event, ToolRequest):
                    self._running.take(event, group)
                else:
                    self._running.cancel(event.id)


def _first(errors: ExceptionGroup[HostError]) -> HostError:
    error: HostError | ExceptionGroup[HostError] = errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
