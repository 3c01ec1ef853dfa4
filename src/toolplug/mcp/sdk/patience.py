"""How long an answer is waited for that nobody wants any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

AFTERWARDS_S = 5.0


class Patience:
    """One request's: without end, and five seconds from when it was cancelled on.

    A server of the older era is told of a cancellation in another request, and may never end the one that it is about.
    """

    def __init__(self, afterwards_s: float = AFTERWARDS_S) -> None:
        self._afterwards_s = afterwards_s
        self._until: float | None = None
        self._waiting: asyncio.Timeout | None = None

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Wait for a part of the answer. Raises `TimeoutError`."""
        waiting = asyncio.timeout_at(self._until)
        async with waiting:
            self._waiting = waiting
            try:
                yield
            finally:
                self._waiting = None

    def end_soon(self) -> None:
        """Nobody wants the answer any more."""
        self._until = asyncio.get_running_loop().time() + self._afterwards_s
        if self._waiting is not None:
            self._waiting.reschedule(self._until)
