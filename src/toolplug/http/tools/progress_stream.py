"""A tool call as an event stream: `progress` as it comes, then one `result`."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import orjson

from toolplug.catalog.call import ToolResult
from toolplug.execution.reports import Reports
from toolplug.http.exchange import Exchange
from toolplug.http.problem import Headers
from toolplug.sessions.frame import frame


class ProgressStream:
    """Sends what a call reports while it runs. The stream begins with the first event, not before."""

    def __init__(self, exchange: Exchange, call_id: str) -> None:
        self._exchange = exchange
        self._call_id = call_id
        self._reports = Reports(self._send)

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Take one report, from any thread; what is not JSON is dropped. Never blocks."""
        told = progress_frame(self._call_id, progress, total, message)
        if told is not None:
            self._reports.take(told)

    async def result(self, execute: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Run the call and send its progress meanwhile; the result is for the caller to send."""
        return await self._reports.during(execute)

    async def end(self, body: bytes, headers: Headers) -> None:
        """Send the result and end the stream; the headers go out where nothing has been sent before."""
        if not self._exchange.started:
            await self._exchange.begin_stream(headers)
        await self._exchange.send_chunk(frame("result", body))
        await self._exchange.end_stream()

    async def _send(self, told: bytes) -> None:
        if not self._exchange.started:
            await self._exchange.begin_stream()
        await self._exchange.send_chunk(told)


def progress_frame(call_id: str, progress: float, total: float | None, message: str | None) -> bytes | None:
    """One `progress` event, or None where the report is not JSON; absent fields are left out."""
    fields: dict[str, object] = {"call_id": call_id, "progress": progress}
    if total is not None:
        fields["total"] = total
    if message is not None:
        fields["message"] = message
    if any(isinstance(value, float) and not math.isfinite(value) for value in fields.values()):
        return None
    try:
        return frame("progress", orjson.dumps(fields))
    except TypeError:
        return None
