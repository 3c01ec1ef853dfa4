"""A probe of the event loop: the longest that one callback kept it, in CPU time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time

UNBOUNDED_MS = 500
"""Ten times what one callback may take: machines differ by a factor, and what has no bound takes seconds."""


class LongestCallback:
    """`ms` is the longest CPU time of one callback so far."""

    def __init__(self) -> None:
        self.ms = 0.0


@contextmanager
def longest_callback() -> Iterator[LongestCallback]:
    """Watch every callback of asyncio's own loop until the block ends; CPU time, which other load does not change.

    What the tests before it left in this process is not the code's: a full collection of it took two seconds once.
    """
    found = LongestCallback()
    handle = asyncio.Handle
    whole = handle._run

    def timed(self: asyncio.Handle) -> None:
        began = thread_time()
        whole(self)
        found.ms = max(found.ms, (thread_time() - began) * 1000)

    handle._run = timed  # type: ignore[method-assign]
    gc.freeze()
    try:
        yield found
    finally:
        gc.unfreeze()
        handle._run = whole  # type: ignore[method-assign]
