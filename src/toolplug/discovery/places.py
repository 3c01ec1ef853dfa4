"""How many servers are asked for their tools at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

AT_ONCE = 4
SLOW = 12
PATIENCE_S = 2.0


class _Stay:
    """One who has a place; `slow` when it has gone over to the others that take long."""

    __slots__ = ("slow", "timer")

    def __init__(self) -> None:
        self.slow = False
        self.timer: asyncio.TimerHandle | None = None


class Places:
    """A few places for all, first come, first served; whoever has taken long makes room for those who wait.

    `at_once` are served at a time. After `patience_s` one goes over to at most `slow` others that take long, which have
    places of their own: so a few servers that hang delay nobody for longer than that.
    """

    def __init__(self, *, at_once: int = AT_ONCE, slow: int = SLOW, patience_s: float = PATIENCE_S) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._room = slow
        self._patience_s = patience_s
        self._overdue: deque[_Stay] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Wait for a place and have it inside."""
        await self._places.acquire()
        stay = _Stay()
        stay.timer = asyncio.get_running_loop().call_later(self._patience_s, self._takes_long, stay)
        try:
            yield
        finally:
            stay.timer.cancel()
            self._leave(stay)

    def _takes_long(self, stay: _Stay) -> None:
        self._overdue.append(stay)
        self._go_over()

    def _go_over(self) -> None:
        while self._overdue and self._room:
            stay = self._overdue.popleft()
            stay.slow = True
            self._room -= 1
            self._places.release()

    def _leave(self, stay: _Stay) -> None:
        if stay.slow:
            self._room += 1
            self._go_over()
            return
        if stay in self._overdue:
            self._overdue.remove(stay)
        self._places.release()
