"""What the target of a call raises where its source cannot be reached."""

from __future__ import annotations


class SourceAway(Exception):
    """The tool is known, but what it needs is away: the call ends as `unavailable`, with this reason and code.

    `retry_after_s`: seconds after which it may be back, where that is known.
    """

    def __init__(self, reason: str, *, code: str, retry_after_s: float | None = None) -> None:
        self.code = code
        self.retry_after_s = retry_after_s
        super().__init__(reason)
