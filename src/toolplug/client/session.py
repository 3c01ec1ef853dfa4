"""An entered session of an application: its event stream, its tools and the requests that it answers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial

from toolplug.catalog.call import CallContext
from toolplug.catalog.trace_context import trace_context
from toolplug.client.answering import Answer, Progress, answer
from toolplug.client.backoff import Backoff
from toolplug.client.events import EventStream, ToolCancelled, ToolRequest
from toolplug.client.host_requests import HostRequests
from toolplug.client.session_requests import RegistrationInfo, SessionRequests
from toolplug.client.tool import Tool
from toolplug.client.tool_sync import ToolSync
from toolplug.errors import HostError, HostRefused, SessionOver

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
