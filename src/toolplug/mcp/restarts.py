"""When a server that could not be reached, or that has died, may be started again."""

from __future__ import annotations

import random
from collections.abc import Callable
from time import monotonic

FIRST_S = 1.0
LONGEST_S = 60.0
STEADY_S = 10.0
"""A connection that lasted so long was a good one: when it ends, the next one may begin at once."""

_DOUBLINGS = 6


class Restarts:
    """Pauses of a second after the first failure, doubling to a minute; each a little shorter by chance.

    `jitter` gives numbers from 0 to 1.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, jitter: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._failures = 0
        self._until = 0.0

    def pause_s(self) -> float:
        """How long it still has to be left alone; 0 where it may be started."""
        return max(self._until - self._clock(), 0.0)

    def failed(self) -> float:
        """It could not be reached; the pause that follows."""
        pause = min(FIRST_S * 2 ** min(self._failures, _DOUBLINGS), LONGEST_S) * (1 - self._jitter() / 4)
        self._failures += 1
        self._until = self._clock() + pause
        return pause

    def lasted(self, seconds: float) -> None:
        """A connection has ended after so long: one that was not steady counts as a failure."""
        if seconds < STEADY_S:
            self.failed()
        else:
            self._failures = 0
