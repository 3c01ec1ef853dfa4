"""One entered session of an application: its event stream, its tools and the requests that it answers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial

from toolplug.catalog.call import CallContext
from toolplug.client.answering import Answer, Progress, answer
from toolplug.client.backoff import Pace
from toolplug.client.events import EventStream, ToolCancelled, ToolRequest
from toolplug.client.host_requests import HostRequests
from toolplug.client.session_requests import Introduction, SessionRequests
from toolplug.client.tool import Tool
from toolplug.client.tool_sync import Lending
from toolplug.errors import HostError, HostRefused, SessionOver

_LOG = logging.getLogger("toolplug.client")

REMEMBERED = 1_024
_NOT_AWAITED = frozenset({"already_answered", "too_late", "request_not_found"})


class RunningRequests:
    """Carries each request out once, however often it is sent, and answers it until the host has taken the answer.

    At most `max_running` functions run at once; the others wait in the order of their requests. Its tasks belong to
    `group`.
    """

    def __init__(
        self, tools: Mapping[str, Tool], session: SessionRequests, code: str, pace: Pace, max_running: int
    ) -> None:
        self._tools = tools
        self._session = session
        self._code = code
        self._pace = pace
        self._places = asyncio.Semaphore(max_running)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._answered: OrderedDict[str, None] = OrderedDict()

    def take(self, request: ToolRequest, group: asyncio.TaskGroup) -> None:
        """Begin, unless it has begun already: its one answer is on the way."""
        if request.id in self._running or request.id in self._answered:
            return
        task = group.create_task(self._carry_out(request), name=f"toolplug {request.tool}")
        self._running[request.id] = task
        task.add_done_callback(lambda _: self._forget(request.id))

    def cancel(self, request_id: str) -> None:
        """Nobody waits any more: cancel the function, if it is asynchronous, and answer nothing."""
        task = self._running.get(request_id)
        if task is not None:
            task.cancel()

    async def _carry_out(self, request: ToolRequest) -> None:
        try:
            async with asyncio.timeout(self._pace.call_s):
                made = await self._made(request)
                await self._pace.insist(partial(self._send, request, made))
        except TimeoutError:
            _LOG.warning("tool %r was not answered within %.0f s", request.tool, self._pace.call_s)

    async def _made(self, request: ToolRequest) -> Answer:
        tool = self._tools.get(request.tool)
        if tool is None:
            return {"error": f'the application has no tool "{request.tool}" any more'}
        progress = Progress(partial(self._session.send, request.id))
        context = CallContext(session=self._code, report=progress.report)
        async with asyncio.TaskGroup() as group:
            reporting = group.create_task(progress.run(), name=f"toolplug progress of {request.tool}")
            made = await answer(tool, request.arguments, context, self._places)
            reporting.cancel()
        return made

    async def _send(self, request: ToolRequest, made: Answer) -> None:
        try:
            await self._session.send(request.id, made)
        except SessionOver:
            raise
        except HostRefused as error:
            if error.retry_after_s is not None:
                raise
            _LOG.warning("the answer of tool %r was refused: %s: %s", request.tool, error.code, error)
            if "result" in made and error.code not in _NOT_AWAITED:
                await self._send(request, {"error": f"the host does not take the result: {error}"})

    def _forget(self, request_id: str) -> None:
        del self._running[request_id]
        self._answered[request_id] = None
        if len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)


_READERS: Mapping[str, Callable[[bytes], ToolRequest | ToolCancelled]] = {
    "tool-request": ToolRequest.model_validate_json,
    "tool-cancelled": ToolCancelled.model_validate_json,
}


class OpenSession:
    """`host` speaks under the session's token; `tools` is what the application lends now."""

    def __init__(
        self,
        host: HostRequests,
        code: str,
        introduction: Introduction,
        tools: Mapping[str, Tool],
        pace: Pace,
        max_running: int,
    ) -> None:
        requests = SessionRequests(host, code)
        self.lending: Lending = Lending(requests, introduction, tools, pace)
        self._stream = EventStream(host, requests.stream, _READERS, pace)
        self._running = RunningRequests(tools, requests, code, pace, max_running)

    async def run(self) -> None:
        """Until cancelled. Raises `HostError` when it is over; every function that runs then is cancelled."""
        over: HostError = SessionOver("left", "the application has left its session")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.lending.run(), name="toolplug lending")
                await self._listen(group)
        except* HostError as errors:
            over = _first(errors)
        finally:
            self.lending.end(over)
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
