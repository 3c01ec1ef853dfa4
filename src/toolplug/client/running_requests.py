"""The requests of one session that are being carried out."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial

from toolplug.catalog.call import CallContext
from toolplug.client.answering import Answer, answer
from toolplug.client.changes import ToolRequest
from toolplug.client.pace import Pace
from toolplug.client.progress import Progress
from toolplug.client.session_requests import SessionRequests
from toolplug.client.tool import Tool
from toolplug.errors import HostRefused, SessionOver

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
