"""Limiters that must admit a call before its provider is reached: breaker, rate, concurrency.

`CallAccounting` keeps one for each level (tool, toolset, provider, global) that sets it, beyond every catalog. `admit`
takes a place, or returns what `refusal` would return and takes none; it raises `TimeoutError` when the deadline, in
loop time, ends the wait in a queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic

from toolplug.catalog.plan import Limiter, Refusal
from toolplug.catalog.text import pluralize

ABANDONED_DRAIN_S = 2.0
"""Seconds for which a drain waits for calls that were answered at their deadline but still run."""


class SourceSwitch:
    """The switch of one started provider. A closed one never opens again; its running calls go on.

    `running` counts calls and route handlers; code that raises it must call `leave` once when the work has ended.
    `abandoned` counts those of them whose callers have been answered.
    """

    __slots__ = ("_changed", "abandoned", "open", "running")

    def __init__(self) -> None:
        self.open: bool = True
        self.running: int = 0
        self.abandoned: int = 0
        # Made at the first drain: a switch exists for each provider, also where no loop runs yet.
        self._changed: asyncio.Event | None = None

    def leave(self) -> None:
        """Count down one call or handler that has ended."""
        self.running -= 1
        if self._changed is not None:
            self._changed.set()

    def abandon(self) -> None:
        """Count one running call whose caller has been answered; lower `abandoned` when it ends."""
        self.abandoned += 1
        if self._changed is not None:
            self._changed.set()

    async def drain(self, patience_s: float) -> bool:
        """Wait up to `patience_s` until nothing runs, for abandoned calls `ABANDONED_DRAIN_S`; False if some do."""
        try:
            async with asyncio.timeout(patience_s):
                # The calls that somebody still waits for get the whole time, the abandoned ones two seconds: they may
                # hang for ever.
                await self._until(lambda: self.running <= self.abandoned)
                async with asyncio.timeout(ABANDONED_DRAIN_S):
                    await self._until(lambda: self.running == 0)
        except TimeoutError:
            return False
        return True

    async def _until(self, is_so: Callable[[], bool]) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        while not is_so():
            self._changed.clear()
            await self._changed.wait()


ABANDONED_LIMIT = 16
ABANDONED_RETRY_S = 30.0
_ONE_TRIES_S = 1.0
"""The `retry_after_s` while one call tests whether a breaker may close: its duration is unknown."""

_LOG = logging.getLogger("toolplug.execution")
_FAILURES = frozenset({"panic", "timeout"})
_ANSWERED = frozenset({"success", "tool_error"})


class _Limiter:
    """The default of a limiter: neither the answer of a call nor its end changes anything."""

    __slots__ = ()

    def on_answer(self, status: str) -> None:
        """Ignore the status that the caller got."""

    def on_end(self) -> None:
        """Ignore the end of the tool itself."""


class ConcurrencyLimit(_Limiter):
    """At most `size` calls at once; `queue` more wait in order until a call ends or their deadline comes.

    A call keeps its place until the tool itself has ended.
    """

    __slots__ = ("_taken", "_waiting", "queue", "size", "what")

    setting = "max_concurrency"

    def __init__(self, size: int, queue: int, what: str) -> None:
        self.size: int = size
        self.queue: int = queue
        self.what: str = what
        self._taken: int = 0
        self._waiting: deque[asyncio.Future[bool]] = deque()

    def resize(self, size: int, queue: int) -> None:
        """Change the numbers; running and waiting calls keep their places."""
        self.size, self.queue = size, queue
        # A larger size frees places, which those that wait must learn of.
        self._hand_on()

    @property
    def usage(self) -> str:
        return f"{self._taken} of {self.size} calls of {self.what} run, {len(self._waiting)} of {self.queue} wait"

    def refusal(self) -> Refusal | None:
        if (self._taken < self.size and not self._waiting) or len(self._waiting) < self.queue:
            return None
        return Refusal(f"{pluralize(self._taken, 'call')} of {self.what} running already", 1.0)

    async def admit(self, deadline: float) -> Refusal | None:
        # Not past those that wait already: places are given in the order of arrival.
        if self._taken < self.size and not self._waiting:
            self._taken += 1
            return None
        refusal = self.refusal()
        if refusal is None:
            await self._wait_in_queue(deadline)
        return refusal

    async def _wait_in_queue(self, deadline: float) -> None:
        """Wait in the queue for a place. Raises `TimeoutError`."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(place)
        # Not `asyncio.timeout`: a place that is granted in the same turn as the deadline would be lost with its
        # cancellation.
        timer = loop.call_at(deadline, _grant, place, False)
        try:
            if not await place:
                raise TimeoutError(f"no place for a call of {self.what} before its deadline")
        except asyncio.CancelledError:
            # Granted and cancelled in one turn: the place goes to the next, or it would be lost for good.
            if not place.cancelled() and place.result():
                self.on_end()
            raise
        finally:
            timer.cancel()
            if place in self._waiting:
                self._waiting.remove(place)

    def on_end(self) -> None:
        self._taken -= 1
        self._hand_on()

    def _has_place(self) -> bool:
        return self._taken < self.size

    def _hand_on(self) -> None:
        while self._waiting and self._has_place():
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(True)


def _grant(place: asyncio.Future[bool], granted: bool) -> None:
    if not place.done():
        place.set_result(granted)


class RateLimit(_Limiter):
    """At most `count` calls may begin in any `per_s` seconds.

    A window of its own over a monotonic clock: the in-memory storage of the library `limits` counts by the wall clock,
    so that an hour's jump back would refuse every call for an hour, and sweeps in timer threads.
    """

    __slots__ = ("_began", "_clock", "count", "per_s", "what")

    setting = "rate"

    def __init__(self, count: int, per_s: int, what: str, *, clock: Callable[[], float] = monotonic) -> None:
        self.count: int = count
        self.per_s: int = per_s
        self.what: str = what
        self._clock = clock
        self._began: deque[float] = deque()

    def resize(self, count: int, per_s: int) -> None:
        """Change the numbers; calls that were counted stay counted."""
        self.count, self.per_s = count, per_s

    @property
    def recent_calls(self) -> int:
        """The calls that began in the last window."""
        self._forget(self._clock())
        return len(self._began)

    @property
    def usage(self) -> str:
        return f"{self.recent_calls} of {self.count} calls of {self.what} began in the last {self.per_s} s"

    async def admit(self, deadline: float) -> Refusal | None:
        # Nothing is awaited between the check and the count, so that no lock is needed.
        refusal = self.refusal()
        if refusal is None:
            self._began.append(self._clock())
        return refusal

    def refusal(self) -> Refusal | None:
        now = self._clock()
        self._forget(now)
        began = self._began
        if len(began) < self.count:
            return None
        # After a smaller `count` was set there may be more entries than it allows; the one that frees a place is
        # further back.
        frees = began[len(began) - self.count] + self.per_s
        return Refusal(f"{self.what} takes {pluralize(self.count, 'call')} in {self.per_s} s", frees - now)

    def _forget(self, now: float) -> None:
        """Drop the calls that began before the window."""
        while self._began and self._began[0] <= now - self.per_s:
            self._began.popleft()


class Breaker(_Limiter):
    """Opens for `open_for_s` seconds after `failures` panics and timeouts in a row, then admits one call as a test.

    The test is admitted when all earlier calls have been answered, so that their answers are not taken for its own.
    """

    __slots__ = ("_clock", "_failed", "_unanswered", "_until", "failures", "open", "open_for_s", "what")

    setting = "breaker"

    def __init__(self, failures: int, open_for_s: float, what: str, *, clock: Callable[[], float] = monotonic) -> None:
        self.failures: int = failures
        self.open_for_s: float = open_for_s
        self.what: str = what
        self.open: bool = False
        self._clock = clock
        self._failed = 0
        self._unanswered = 0
        self._until = 0.0

    def resize(self, failures: int, open_for_s: float) -> None:
        """Change the numbers; an open breaker keeps the time at which it may be tested."""
        self.failures, self.open_for_s = failures, open_for_s

    @property
    def usage(self) -> str:
        return f"{self._failed} of {self.failures} failures of {self.what} in a row"

    def refusal(self) -> Refusal | None:
        left = self._until - self._clock() if self.open else 0.0
        # `_unanswered`: late answers of calls from before it opened would be taken for that of the test.
        if self.open and (left > 0 or self._unanswered):
            wait, failed = left if left > 0 else _ONE_TRIES_S, pluralize(self._failed, "failure")
            return Refusal(f"its breaker is open after {failed} of {self.what}", wait)
        return None

    async def admit(self, deadline: float) -> Refusal | None:
        refusal = self.refusal()
        if refusal is None:
            self._unanswered += 1
        return refusal

    def on_answer(self, status: str) -> None:
        self._unanswered -= 1
        if status in _FAILURES:
            self._failed += 1
            # `>=`: a resize may have lowered the number below what was counted.
            if not self.open and self._failed >= self.failures:
                self.open = True
                failed = pluralize(self._failed, "failure")
                _LOG.warning("the breaker of %s is open for %g s: %s in a row", self.what, self.open_for_s, failed)
            if self.open:
                self._until = self._clock() + self.open_for_s
        # Neither a success nor a failure (refused, cancelled, bad arguments): such a call says nothing of the tool.
        elif status in _ANSWERED:
            self._failed = 0
            if self.open:
                _LOG.info("the breaker of %s is closed again: a call was answered", self.what)
            self.open = False


class Uncounted(_Limiter):
    """A breaker that may refuse a call but does not count it, since tools of other tenants share the breaker."""

    __slots__ = ("_breaker",)

    setting = "breaker"

    def __init__(self, breaker: Limiter) -> None:
        self._breaker = breaker

    @property
    def usage(self) -> str:
        return self._breaker.usage

    def refusal(self) -> Refusal | None:
        return self._breaker.refusal()

    async def admit(self, deadline: float) -> Refusal | None:
        return self._breaker.refusal()


class AbandonedCallLimit:
    """The limit that every provider has: at most 16 of its calls may run on after their callers were answered."""

    __slots__ = ("limit", "running", "what")

    def __init__(self, what: str, limit: int = ABANDONED_LIMIT) -> None:
        self.running: int = 0
        self.limit: int = limit
        self.what: str = what

    def abandon(self) -> None:
        """Count one more call that runs on after its caller was answered, and log when the limit is reached."""
        self.running += 1
        if self.running == self.limit:
            _LOG.warning("%d abandoned calls of %s still run; further ones are limited", self.running, self.what)

    def refusal(self) -> Refusal:
        """Return the refusal of a call while `limit` abandoned calls run."""
        return Refusal(
            f"its breaker is open: {self.running} abandoned calls of {self.what} still run", ABANDONED_RETRY_S
        )
