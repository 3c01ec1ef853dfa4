"""What a call reports while it runs, from any thread, sent one after another."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

MAX_WAITING = 256
"""Reports that a slow client has not taken yet; the oldest goes first."""

T = TypeVar("T")


class _Report(NamedTuple):
    progress: float
    total: float | None
    message: str | None


class Reports:
    """Sends what `report` is given; progress that does not rise is dropped, as the protocol wants."""

    def __init__(self, send: Callable[[float, float | None, str | None], Awaitable[None]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Report] = deque(maxlen=MAX_WAITING)
        self._highest = -math.inf
        self._wake = asyncio.Event()

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Take one report, from any thread; what is no progress is dropped. Never blocks."""
        if not _is_number(progress) or not (total is None or _is_number(total)):
            return
        text = message if isinstance(message, str) else None
        try:
            self._loop.call_soon_threadsafe(self._take, _Report(progress, total, text))
        except RuntimeError:  # the loop was closed while the tool ran on: nobody reads any more
            return

    async def during(self, execute: Callable[[], Awaitable[T]]) -> T:
        """Run the call and send its reports meanwhile; those that came before its end are sent before its result."""
        running = asyncio.ensure_future(execute())
        running.add_done_callback(lambda _: self._wake.set())
        try:
            while not running.done():
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._send(*self._waiting.popleft())
            return running.result()
        finally:
            running.cancel()

    def _take(self, report: _Report) -> None:
        if report.progress > self._highest:
            self._highest = report.progress
            self._waiting.append(report)
            self._wake.set()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
