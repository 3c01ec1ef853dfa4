"""Probes of CPU time that hold on any machine: what a callback of the event loop, or a function, costs.

The costs are counted in units. One unit is a fixed piece of work that the same process does before and after, so a
machine of half the speed measures the same number.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from time import thread_time

UNBOUNDED = 170.0
"""Units: ten times what one callback may take. Work without a bound takes a hundred times as much."""

AGAIN = 8.0
"""Units: a step above this is measured again, since another process may have disturbed it."""

_OLDEST = 2
_ROWS = 600
"""Rows of the fixed piece of work, which takes 3 ms on a core of 2024."""
_TRIES = 3


class LongestCallback:
    """`ms` is the longest CPU time of one callback so far; `units`, when the block has ended, is the same in units."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.units = inf


@contextmanager
def longest_callback(known_unit_ms: float = 0.0) -> Iterator[LongestCallback]:
    """Watch every callback of asyncio's own loop until the block ends; CPU time, which other load does not change.

    Of the callback that enters the block, and of the one that leaves it, the part within it counts. A test of thousands
    of blocks gives the unit that it has measured: it is measured again only after a callback above `AGAIN`.

    Full collections of garbage are not counted: most of what they walk through is left from other tests, and late in a
    run of thousands they take seconds.
    """
    found = LongestCallback()
    handle = asyncio.Handle
    whole = handle._run
    unit_before_ms = known_unit_ms or unit_ms()
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
        is_short = known_unit_ms and found.ms <= AGAIN * known_unit_ms
        found.units = found.ms / (known_unit_ms if is_short else max(unit_before_ms, unit_ms()))


def unit_ms() -> float:
    """Measure one unit: the CPU time of the fixed piece of work, in milliseconds."""
    return least_cpu_s(_work) * 1000


def cost(work: Callable[[], object]) -> float:
    """Measure the CPU time of a function, in units; what takes long is done again, since others disturb some tries."""
    took_ms = least_cpu_s(work, tries=1) * 1000
    if took_ms > AGAIN * unit_ms():
        took_ms = min(took_ms, least_cpu_s(work) * 1000)
    return took_ms / unit_ms()


def growth(work: Callable[[int], object], small: int, large: int) -> float:
    """Measure how many times the CPU time of a small input a large one takes; the tries of the two alternate."""
    small_s = large_s = inf
    for _ in range(_TRIES):
        small_s = min(small_s, least_cpu_s(partial(work, small), tries=1))
        large_s = min(large_s, least_cpu_s(partial(work, large), tries=1))
    return large_s / small_s


def least_cpu_s(work: Callable[[], object], tries: int = _TRIES) -> float:
    """Measure the CPU time of a function, in seconds: the least of the tries."""
    least = inf
    for _ in range(tries):
        began = thread_time()
        work()
        least = min(least, thread_time() - began)
    return least


def _work() -> None:
    json.loads(json.dumps([{"name": f"row {number}", "value": number} for number in range(_ROWS)]))
