"""A loop whose time stands still while anything can run and jumps to the next timer when nothing can.

So a test waits an hour in no time, the same at every run, and one that waits for what never comes is told so.
"""

from __future__ import annotations

import asyncio
import selectors

EPOCH = 1_700_000_000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """For tests without threads, sockets and child processes."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now

    def timers(self) -> list[asyncio.TimerHandle]:
        """The timers that are still to fire."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return [timer for timer in scheduled if not timer.cancelled()]


def virtual_clock() -> float:
    """The running loop's time as a time of day."""
    return EPOCH + asyncio.get_running_loop().time()


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits for what never comes")
        if timeout <= 0:
            return []  # something can run, and is not held up by what waits: the only file here is the loop's own
        self._loop.now += timeout
        return super().select(0)


VIRTUAL = ("asyncio", {"loop_factory": VirtualLoop})
"""The backend of tests that run in virtual time."""


async def pass_time(seconds: float) -> None:
    """Let so much time pass, with everything that is due in it."""
    await asyncio.sleep(seconds)
