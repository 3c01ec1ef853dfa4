"""Plain counters of one tool: five times cheaper than bound metric children; collected when scraped."""

from __future__ import annotations

from bisect import bisect_left

BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

_FASTEST = BUCKETS[0]


class CallSeries:
    """How the calls of one tool ended and how long they took. Never falls; one instance for the life of the ledger."""

    __slots__ = ("buckets", "ended", "in_flight", "provider", "seconds", "tool_name")

    def __init__(self, provider: str, tool_name: str) -> None:
        self.provider: str = provider
        self.tool_name: str = tool_name
        self.ended: dict[str, int] = {}
        self.buckets: list[int] = [0] * (len(BUCKETS) + 1)
        self.seconds: float = 0.0
        self.in_flight: int = 0

    def record(self, status: str, seconds: float) -> None:
        """Count one call that has been answered."""
        try:
            self.ended[status] += 1
        except KeyError:
            self.ended[status] = 1
        self.buckets[0 if seconds <= _FASTEST else bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


def cumulated(counts: list[int]) -> list[tuple[str, float]]:
    """Counts for each bucket as the cumulated ones that the exposition format has."""
    bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
    total = 0
    cumulated: list[tuple[str, float]] = []
    for bound, count in zip(bounds, tuple(counts), strict=True):
        total += count
        cumulated.append((bound, float(total)))
    return cumulated
