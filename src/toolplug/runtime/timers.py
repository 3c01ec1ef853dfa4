"""Timeouts: one timer of many waits, one that is not believed before the loop had its turn; and work that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import process_time
from types import TracebackType
from typing import Any, Self

_RESOLUTION_S = 0.001
"""Of uvloop's clock and timers: one may fire so much before its time."""


class Timers:
    """Calls back at the end of waits, of which uvloop takes 4 µs each for a timer that is started and cancelled.

    The loop's timer is set to the first end, and stays there when that wait is over before. When it fires, it looks at
    those who wait then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[Timer] = set()
        self._at = inf
        self._handle: asyncio.TimerHandle | None = None

    def call_later(self, delay_s: float, callback: Callable[[Any], object], argument: object) -> Timer:
        """Call back after so many seconds, unless the timer is cancelled."""
        at = self._loop.time() + delay_s
        timer = Timer(self._waiting, at, callback, argument)
        self._waiting.add(timer)
        if at < self._at:
            self._set(at)
        return timer

    def close(self) -> None:
        """Call nobody back any more."""
        self._waiting.clear()
        self._set(inf)

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        self._handle = None if at == inf else self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        until = self._loop.time() + _RESOLUTION_S
        self._handle = None
        for timer in [each for each in self._waiting if each.at <= until]:
            timer.cancel()
            timer.callback(timer.argument)
        self._set(min((each.at for each in self._waiting), default=inf))


class Timer:
    """One of `Timers`."""

    __slots__ = ("_waiting", "argument", "at", "callback")

    def __init__(self, waiting: set[Timer], at: float, callback: Callable[[Any], object], argument: object) -> None:
        self._waiting = waiting
        self.at: float = at
        self.callback: Callable[[Any], object] = callback
        self.argument: object = argument

    def cancel(self) -> None:
        """Do not call back."""
        self._waiting.discard(self)


PARTS = 4
"""Into so many parts the time is divided; an answer within the first one costs one timer, as with `asyncio.timeout`."""
MOST_PARTS = 40
"""After so many parts it ends even if the loop is always late."""


class LoopTimeout:
    """Like `asyncio.timeout(seconds)`, in seconds in which the loop ran.

    A process that imports, or waits for a processor of a busy machine, finds its timers due together with answers that
    came long ago. So the time is counted in parts: one that ends late counts once, however long the loop was away, and
    the timeout is raised only after a last part that ended in time. Raises `TimeoutError`.

    ```python
    import asyncio

    from toolplug.runtime import LoopTimeout

    async def main():
        try:
            async with LoopTimeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            print("it took too long")

    asyncio.run(main())
    ```
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


class WorkTime:
    """Tells what works from what hangs, by the time of the processor: on a busy machine both take long.

    Made when a wait begins, and asked each time when `within_s` seconds of it have passed.
    """

    IDLE_SHARE = 0.01
    """What used less of a processor than this, of the time for which it was waited, hangs."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._began = self._looked = process_time()

    def goes_on(self) -> bool:
        """Return whether this process has worked since the last look, and has not had `within_s` of a processor."""
        before, self._looked = self._looked, process_time()
        worked_s = self._looked - before
        return self._looked - self._began < self._within_s and worked_s >= self._within_s * self.IDLE_SHARE
