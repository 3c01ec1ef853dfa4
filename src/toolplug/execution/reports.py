"""What a call reports while it runs, from any thread, sent one after another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

MAX_WAITING = 256
"""Reports that a slow client has not taken yet; the oldest goes first."""

T = TypeVar("T")
R = TypeVar("R")


class Reports(Generic[T]):
    """Sends the reports of one call while it runs."""

    def __init__(self, send: Callable[[T], Awaitable[None]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[T] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()

    def take(self, report: T) -> None:
        """Take one report, from any thread. Never blocks."""
        try:
            self._loop.call_soon_threadsafe(self._taken, report)
        except RuntimeError:  # the loop was closed while the tool ran on: nobody reads any more
            return

    async def during(self, execute: Callable[[], Awaitable[R]]) -> R:
        """Run the call and send its reports meanwhile; those that came before its end are sent before its result."""
        running = asyncio.ensure_future(execute())
        running.add_done_callback(lambda _: self._wake.set())
        try:
            while not running.done():
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._send(self._waiting.popleft())
            return running.result()
        finally:
            running.cancel()

    def _taken(self, report: T) -> None:
        self._waiting.append(report)
        self._wake.set()
