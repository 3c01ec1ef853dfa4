"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """Returns `now`, in seconds; a test sets it."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now: float = now

    def __call__(self) -> float:
        return self.now
