"""A probe of the event loop: the longest that one callback kept it, in CPU time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import thread_time

UNBOUNDED_MS = 500
"""Ten times what one callback may take: machines differ by a factor, and what has no bound takes seconds."""

_OLDEST = 2


class LongestCallback:
    """`ms` is the longest CPU time of one callback so far."""

    def __init__(self) -> None:
        self.ms = 0.0


@contextmanager
def longest_callback() -> Iterator[LongestCallback]:
    """Watch every callback of asyncio's own loop until the block ends; CPU time, which other load does not change.

    Of the callback that enters the block, and of the one that leaves it, the part within it counts.

    Full collections of garbage are not counted: most of what they walk through is left from other tests, and late in a
    run of thousands they take seconds.
    """
    found = LongestCallback()
    handle = asyncio.Handle
    whole = handle._run
    began = thread_time()
    collecting = 0.0

    def timed(self: asyncio.Handle) -> None:
        nonlocal began
        began = thread_time()
        whole(self)
        found.ms = max(found.ms, (thread_time() - began) * 1000)

    def collected(phase: str, collection: Mapping[str, int]) -> None:
        nonlocal began, collecting
        if collection["generation"] < _OLDEST:
            return
        if phase == "start":
            collecting = thread_time()
        else:
            began += thread_time() - collecting

    handle._run = timed  # type: ignore[method-assign]
    gc.callbacks.append(collected)
    try:
        yield found
    finally:
        found.ms = max(found.ms, (thread_time() - began) * 1000)
        gc.callbacks.remove(collected)
        handle._run = whole  # type: ignore[method-assign]
