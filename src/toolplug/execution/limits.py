"""What must admit a call before its provider is reached: breaker, rate, concurrency.

Each remembers by itself and outlives every catalog; `CallAccounting` keeps one for each level (tool, toolset, provider,
global) that sets it. `admit` takes a place, or refuses and takes nothing, as `refusal` would say at that moment; the
wait in a queue ends with `TimeoutError` at the deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic

from toolplug.catalog.plan import Limiter, Refusal
from toolplug.catalog.text import counted


class SourceSwitch:
    """The switch of one started provider. A closed one never opens again; its calls end on their own.

    `running` counts calls and route handlers alike; whoever raises it calls `leave` once when the work has ended.
    """

    __slots__ = ("_drained", "open", "running")

    def __init__(self) -> None:
        self.open: bool = True
        self.running: int = 0
        self._drained: asyncio.Event | None = None

    def leave(self) -> None:
        """One call or handler has ended."""
        self.running -= 1
        if self.running == 0 and self._drained is not None:
            self._drained.set()

    async def drained(self, patience_s: float) -> bool:
        """Wait until nothing runs, at most so long; False when something still does."""
        if self.running == 0:
            return True
        if self._drained is None:
            self._drained = asyncio.Event()
        self._drained.clear()
        try:
            async with asyncio.timeout(patience_s):
                await self._drained.wait()
        except TimeoutError:
            return False
        return True


ABANDONED_LIMIT = 16
ABANDONED_RETRY_S = 30.0
_ONE_TRIES_S = 1.0
"""When to come again while one call tries whether a breaker may close: nobody knows how long that takes."""

_LOG = logging.getLogger("toolplug.execution")
_FAILURES = frozenset({"panic", "timeout"})
_ANSWERED = frozenset({"success", "tool_error"})


class ConcurrencyLimit:
    """At most `size` calls at once; `queue` more may wait until one ends or their deadline comes, in order."""

    __slots__ = ("_taken", "_waiting", "queue", "size", "what")

    knob = "max_concurrency"

    def __init__(self, size: int, queue: int, what: str) -> None:
        self.size: int = size
        self.queue: int = queue
        self.what: str = what
        self._taken = 0
        self._waiting: deque[asyncio.Future[bool]] = deque()

    def resized(self, size: int, queue: int) -> None:
        """Take new numbers; calls that run or wait keep their places."""
        self.size, self.queue = size, queue
        self._hand_on()

    @property
    def used(self) -> str:
        return f"{self._taken} of {self.size} calls of {self.what} run, {len(self._waiting)} of {self.queue} wait"

    def refusal(self) -> Refusal | None:
        if (self._taken < self.size and not self._waiting) or len(self._waiting) < self.queue:
            return None
        return Refusal(f"{counted(self._taken, 'call')} of {self.what} running already", 1.0)

    async def admit(self, deadline: float) -> Refusal | None:
        if self._taken < self.size and not self._waiting:
            self._taken += 1
            return None
        refusal = self.refusal()
        if refusal is not None:
            return refusal
        loop = asyncio.get_running_loop()
        place: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(place)
        timer = loop.call_at(deadline, _settle, place, False)
        try:
            if not await place:
                raise TimeoutError(f"no place for a call of {self.what} before its deadline")
        except asyncio.CancelledError:
            if not place.cancelled() and place.result():
                self.ended()
            raise
        finally:
            timer.cancel()
            if place in self._waiting:
                self._waiting.remove(place)
        return None

    def answered(self, status: str) -> None:
        """The place is kept until the tool itself has ended."""

    def ended(self) -> None:
        self._taken -= 1
        self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting and self._taken < self.size:
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(True)


def _settle(place: asyncio.Future[bool], granted: bool) -> None:
    if not place.done():
        place.set_result(granted)


class Rate:
    """At most `count` calls in any `per_s` seconds.

    A window of its own over a monotonic clock: the in-memory storage of the library `limits` counts by the wall clock,
    so that an hour's jump back would refuse every call for an hour, and sweeps in timer threads.
    """

    __slots__ = ("_began", "_clock", "count", "per_s", "what")

    knob = "rate"

    def __init__(self, count: int, per_s: int, what: str, *, clock: Callable[[], float] = monotonic) -> None:
        self.count: int = count
        self.per_s: int = per_s
        self.what: str = what
        self._clock = clock
        self._began: deque[float] = deque()

    def resized(self, count: int, per_s: int) -> None:
        """Take new numbers; the calls that were counted stay counted."""
        self.count, self.per_s = count, per_s

    @property
    def used(self) -> str:
        self._forget(self._clock())
        return f"{len(self._began)} of {self.count} calls of {self.what} began in the last {self.per_s} s"

    def refusal(self) -> Refusal | None:
        return self._refusal(self._clock())

    async def admit(self, deadline: float) -> Refusal | None:
        now = self._clock()
        refusal = self._refusal(now)
        if refusal is None:
            self._began.append(now)
        return refusal

    def _refusal(self, now: float) -> Refusal | None:
        self._forget(now)
        began = self._began
        if len(began) < self.count:
            return None
        frees = began[len(began) - self.count] + self.per_s
        return Refusal(f"{self.what} takes {counted(self.count, 'call')} in {self.per_s} s", frees - now)

    def _forget(self, now: float) -> None:
        """Drop the beginnings that count no more."""
        while self._began and self._began[0] <= now - self.per_s:
            self._began.popleft()

    def answered(self, status: str) -> None:
        """A rate counts beginnings only."""

    def ended(self) -> None:
        """A rate counts beginnings only."""


class Breaker:
    """Opens for `open_for_s` after `failures` panics and timeouts in a row, then lets one call try.

    The one that tries is let in when every call from before has been answered, so that its answer is told from theirs.
    """

    __slots__ = ("_clock", "_failed", "_unanswered", "_until", "failures", "open", "open_for_s", "what")

    knob = "breaker"

    def __init__(self, failures: int, open_for_s: float, what: str, *, clock: Callable[[], float] = monotonic) -> None:
        self.failures: int = failures
        self.open_for_s: float = open_for_s
        self.what: str = what
        self.open: bool = False
        self._clock = clock
        self._failed = 0
        self._unanswered = 0
        self._until = 0.0

    def resized(self, failures: int, open_for_s: float) -> None:
        """Take new numbers; an open breaker stays open for as long as it was going to."""
        self.failures, self.open_for_s = failures, open_for_s

    @property
    def used(self) -> str:
        return f"{self._failed} of {self.failures} failures of {self.what} in a row"

    def refusal(self) -> Refusal | None:
        left = self._until - self._clock() if self.open else 0.0
        if self.open and (left > 0 or self._unanswered):
            wait, failed = left if left > 0 else _ONE_TRIES_S, counted(self._failed, "failure")
            return Refusal(f"its breaker is open after {failed} of {self.what}", wait)
        return None

    async def admit(self, deadline: float) -> Refusal | None:
        refusal = self.refusal()
        if refusal is None:
            self._unanswered += 1
        return refusal

    def answered(self, status: str) -> None:
        self._unanswered -= 1
        if status in _FAILURES:
            self._failed += 1
            if self.open or self._failed >= self.failures:
                self._open()
        elif status in _ANSWERED:
            self._failed = 0
            self._close()

    def _open(self) -> None:
        if not self.open:
            failed = counted(self._failed, "failure")
            _LOG.warning("the breaker of %s is open for %g s: %s in a row", self.what, self.open_for_s, failed)
        self.open = True
        self._until = self._clock() + self.open_for_s

    def _close(self) -> None:
        if self.open:
            _LOG.info("the breaker of %s is closed again: a call was answered", self.what)
        self.open = False

    def ended(self) -> None:
        """A breaker counts answers only."""


class Uncounted:
    """A breaker that may refuse a call and does not count it: the tools behind it are not all of one tenant."""

    __slots__ = ("_breaker",)

    knob = "breaker"

    def __init__(self, breaker: Limiter) -> None:
        self._breaker = breaker

    @property
    def used(self) -> str:
        return self._breaker.used

    def refusal(self) -> Refusal | None:
        return self._breaker.refusal()

    async def admit(self, deadline: float) -> Refusal | None:
        return self._breaker.refusal()

    def answered(self, status: str) -> None:
        """The call is not counted."""

    def ended(self) -> None:
        """The call is not counted."""


class AbandonedCallLimit:
    """The breaker that every provider has: closed while fewer than 16 of its calls were given up but still run."""

    __slots__ = ("limit", "running", "what")

    def __init__(self, what: str, limit: int = ABANDONED_LIMIT) -> None:
        self.running: int = 0
        self.limit: int = limit
        self.what: str = what

    def abandon(self) -> None:
        """Count one more call that was given up."""
        self.running += 1
        if self.running == self.limit:
            _LOG.warning("%d abandoned calls of %s still run; further ones are limited", self.running, self.what)

    def refusal(self) -> Refusal:
        """What a call is told while this is open."""
        return Refusal(
            f"its breaker is open: {self.running} abandoned calls of {self.what} still run", ABANDONED_RETRY_S
        )
