"""What must admit a call before its provider is reached: breaker, rate, concurrency.

Each remembers by itself and outlives every catalog; the ledger keeps one for each level (tool, provider, global) that
sets it. `admit` takes a place, or refuses and takes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic, time

from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from toolplug.catalog.plan import Refusal

ABANDONED_LIMIT = 16
ABANDONED_RETRY_S = 30.0

_FAILURES = frozenset({"panic", "timeout"})
_ANSWERED = frozenset({"success", "tool_error"})


class Permits:
    """At most `size` calls at once; `queue` more may wait until one ends or their deadline comes."""

    __slots__ = ("_taken", "_waiting", "queue", "size", "what")

    def __init__(self, size: int, queue: int, what: str) -> None:
        self.size = size
        self.queue = queue
        self.what = what
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resized(self, size: int, queue: int) -> None:
        """Take new numbers; calls that run or wait keep their places."""
        self.size, self.queue = size, queue
        self._hand_on()

    async def admit(self, deadline: float) -> Refusal | None:
        if self._taken < self.size and not self._waiting:
            self._taken += 1
            return None
        if len(self._waiting) >= self.queue:
            return Refusal(f"{self._taken} calls of {self.what} run already", 1.0)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        timer = place.get_loop().call_at(deadline, place.cancel)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._taken -= 1
                self._hand_on()
            else:
                self._waiting.remove(place)
            if place.get_loop().time() < deadline:
                raise
            return Refusal(f"no place for a call of {self.what} before its deadline", 1.0)
        finally:
            timer.cancel()
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
                place.set_result(None)


class Rate:
    """At most `count` calls in any `per_s` seconds."""

    __slots__ = ("_item", "_limiter", "what")

    def __init__(self, count: int, per_s: int, what: str) -> None:
        self.what = what
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._item = RateLimitItemPerSecond(count, per_s)

    def resized(self, count: int, per_s: int) -> None:
        """Take new numbers; what was counted under the same window length stays counted."""
        self._item = RateLimitItemPerSecond(count, per_s)

    async def admit(self, deadline: float) -> Refusal | None:
        if self._limiter.hit(self._item, self.what):
            return None
        window = self._limiter.get_window_stats(self._item, self.what)
        return Refusal(f"the rate of {self.what}, {self._item}", max(window.reset_time - time(), 0.001))

    def answered(self, status: str) -> None:
        """A rate counts beginnings only."""

    def ended(self) -> None:
        """A rate counts beginnings only."""


class Breaker:
    """Opens for `open_for_s` after `failures` panics and timeouts in a row, then lets one call try."""

    __slots__ = ("_clock", "_failed", "_trying", "_until", "failures", "open_for_s", "what")

    def __init__(self, failures: int, open_for_s: float, what: str, *, clock: Callable[[], float] = monotonic) -> None:
        self.failures = failures
        self.open_for_s = open_for_s
        self.what = what
        self._clock = clock
        self._failed = 0
        self._until = 0.0
        self._trying = False

    def resized(self, failures: int, open_for_s: float) -> None:
        """Take new numbers; an open breaker stays open for as long as it was going to."""
        self.failures, self.open_for_s = failures, open_for_s

    @property
    def open(self) -> bool:
        """Is every call refused but, after its time, the one that tries."""
        return self._failed >= self.failures

    async def admit(self, deadline: float) -> Refusal | None:
        if self._failed < self.failures:
            return None
        left = self._until - self._clock()
        if left > 0 or self._trying:
            return Refusal(f"its breaker is open after {self._failed} failures of {self.what}", max(left, 1.0))
        self._trying = True
        return None

    def answered(self, status: str) -> None:
        self._trying = False
        if status in _FAILURES:
            self._failed += 1
            if self._failed >= self.failures:
                self._until = self._clock() + self.open_for_s
        elif status in _ANSWERED:
            self._failed = 0

    def ended(self) -> None:
        """A breaker counts answers only."""


class Abandoned:
    """The breaker that every provider has: closed while fewer than 16 of its calls were given up but still run."""

    __slots__ = ("limit", "running", "what")

    def __init__(self, what: str, limit: int = ABANDONED_LIMIT) -> None:
        self.running = 0
        self.limit = limit
        self.what = what

    def refusal(self) -> Refusal:
        """What a call is told while this is open."""
        return Refusal(
            f"its breaker is open: {self.running} abandoned calls of {self.what} still run", ABANDONED_RETRY_S
        )
