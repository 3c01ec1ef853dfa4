"""The session of an application that is entered: it listens, lends and answers until it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from toolplug.client.changes import ToolCancelled, ToolRequest
from toolplug.client.event_stream import EventStream
from toolplug.client.host_requests import HostRequests
from toolplug.client.lending import Lending
from toolplug.client.pace import Pace
from toolplug.client.running_requests import RunningRequests
from toolplug.client.session_requests import Introduction, SessionRequests
from toolplug.client.tool import Tool
from toolplug.errors import HostError, SessionOver

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
