"""A timeout for answers from outside that is not believed before the event loop has had its turn."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

PARTS = 4
"""Into so many parts the time is divided; an answer within the first one costs one timer, as with `asyncio.timeout`."""
MOST_PARTS = 40
"""After so many parts it ends even if the loop is always late."""


class LoopTimeout:
    """Like `asyncio.timeout(seconds)`, in seconds in which the loop ran.

    A process that imports, or waits for a processor of a busy machine, finds its timers due together with answers that
    came long ago. So the time is counted in parts: one that ends late counts once, however long the loop was away, and
    the timeout is raised only after a last part that ended in time. Raises `TimeoutError`.
    """

    def __init__(self, seconds: float) -> None:
        self._part_s = seconds / PARTS
        self._parts = 0
        self._due = 0.0
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        # It has no time of its own yet: `_end_part` sets one when the last part has ended, and asyncio's own
        # bookkeeping then tells this cancellation from one of the caller.
        await self._timeout.__aenter__()
        self._begin_part(self._loop.time())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _begin_part(self, now: float) -> None:
        self._due = now + self._part_s
        self._timer = self._loop.call_at(self._due, self._end_part)

    def _end_part(self) -> None:
        now = self._loop.time()
        self._parts += 1
        # Late by half a part: the loop was away, and answers that came meanwhile are handled in this same turn. Another
        # part lets them be read first.
        is_late = now - self._due > self._part_s / 2
        if self._parts < PARTS or (is_late and self._parts < MOST_PARTS):
            self._begin_part(now)
        else:
            self._timer = None
            self._timeout.reschedule(now)
