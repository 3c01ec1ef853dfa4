"""The outcome of a call that can outlive its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from toolplug.runtime.timers import Timers

_PARTS = 5
"""Of the time for which `wait_longer` waits."""


class RunningCall:
    """A tool's call that did not end in its first step.

    It ends exactly once. Its caller may stop waiting earlier, at the deadline or when it is cancelled itself; then the
    tool is asked to stop, through `cancel`, and goes on until it does. Awaited, it returns what the tool has returned
    and raises its error; who is cancelled meanwhile asks the tool to stop, and still waits for its end.
    """

    __slots__ = ("_cancel", "_listener", "_loop", "_timers", "_waiter", "done", "error", "value")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, cancel: Callable[[], object] | None, timers: Timers | None = None
    ) -> None:
        self.done: bool = False
        self.value: object = None
        self.error: BaseException | None = None
        self._loop = loop
        self._timers: asyncio.AbstractEventLoop | Timers = timers or loop
        self._cancel = cancel
        self._waiter: asyncio.Future[bool] | None = None
        self._listener: Callable[[], None] | None = None

    def when_done(self, listener: Callable[[], None]) -> None:
        """Call back once when the tool itself has ended; at once if it has."""
        if self.done:
            listener()
        else:
            self._listener = listener

    def finish(self, value: object, error: BaseException | None) -> None:
        """Record how the tool ended, tell the listener, wake the caller if it still waits. On the loop's thread."""
        self.done = True
        self.value = value
        self.error = error
        # It refers to the tool's task, which would otherwise live as long as this object does.
        self._cancel = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)
        # Taken out before it is called, so that a listener that asks again cannot be called twice.
        listener, self._listener = self._listener, None
        if listener is not None:
            listener()

    def cancel(self) -> None:
        """Ask the tool to stop; it may decline, and a thread cannot be asked."""
        if self._cancel is not None:
            self._cancel()

    def stop_waiting(self) -> None:
        """Let the caller wait no longer, as if its time were over."""
        if self._waiter is not None:
            _expire(self._waiter)

    def __await__(self) -> Generator[Any, None, object]:
        asked = False
        while not self.done:
            self._waiter = self._loop.create_future()
            try:
                yield from self._waiter
            except asyncio.CancelledError:
                if asked:
                    raise
                asked = True
                self.cancel()
        if asked:
            raise asyncio.CancelledError
        if self.error is not None:
            raise self.error
        return self.value

    def wait_until(self, time: float) -> Coroutine[Any, Any, bool]:
        """Wait until this loop time at most, like `wait`."""
        return self.wait(time - self._loop.time())

    async def wait(self, seconds: float, *, ask: bool = True) -> bool:
        """Wait at most `seconds` for the end; return whether it came. Raises only the caller's own cancellation.

        In both other cases the tool is then asked to stop; not if it comes too late and `ask` is False.
        """
        if self.done:
            return True
        self._waiter = waiter = self._loop.create_future()
        timer = self._timers.call_later(max(seconds, 0.0), _expire, waiter)
        try:
            ended = await waiter
        # `GeneratorExit`: the caller's coroutine is closed without its loop, as when the loop ends first. `cancel`
        # would then schedule a callback on a closed loop, which raises.
        except (asyncio.CancelledError, GeneratorExit):
            if not self._loop.is_closed():
                self.cancel()
            raise
        finally:
            timer.cancel()
        if not ended and ask:
            # In the next turn: a tool that ends at once when it is cancelled must not delay the answer to its caller.
            self._loop.call_soon(self.cancel)
        return ended

    async def wait_longer(self, seconds: float) -> bool:
        """Wait for the end of a tool that was asked to stop, like `wait`, but do not ask again.

        It waits in several parts, so that a process that was paused for longer still handles what arrived in the pause.
        """
        for _ in range(_PARTS):
            if await self.wait(seconds / _PARTS, ask=False):
                return True
        return False


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
