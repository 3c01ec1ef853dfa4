"""What one row of the table is, and how its two sides are measured in turns.

A row opens both sides in one process and one event loop, sizes a batch of each to about `batch_s`, warms both up,
and then lets them take turns: ours other, other ours, ours other, … Each pair gives one ratio; the row's figure is the
median of the ratios, its spread their quartiles. So a machine that slows down slows both sides of a pair, and a
disturbed pair is one outlier: many short pairs say more than a few long ones.

The garbage collector stays on: each side pays for what it throws away. What stood in memory before is frozen, and
garbage is collected between batches, so that no side pays for another's heap.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from time import process_time

Batch = Callable[[int], Awaitable[float]]
"""Runs the operation n times and returns what they cost together: seconds of the row's clock, or bytes."""

Side = Callable[[], AbstractAsyncContextManager[Batch]]
"""Builds what is measured and takes it down again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit for printing; `scale` is how many of it are in one second or one byte."""

    name: str
    scale: float


MICROSECONDS = Unit(name="µs", scale=1e6)
MILLISECONDS = Unit(name="ms", scale=1e3)
KIBIBYTES = Unit(name="KiB", scale=2**-10)
MEBIBYTES = Unit(name="MiB", scale=2**-20)
MEGABYTES = Unit(name="MB", scale=1e-6)
COUNT = Unit(name="times", scale=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: what is compared, and the ratio that it must hold and that it aims at.

    A row without `other` is about its own cost: `hold` and `aim` are then in `unit`. A row without limits is shown.
    `batch_s` of 0 stands for batches of one operation, and no warm-up: for an operation that is a whole run by itself.
    """

    name: str
    ours: Side
    other: Side | None = None
    against: str = ""
    hold: float | None = None
    aim: float | None = None
    unit: Unit = MICROSECONDS
    pairs: int = 301
    batch_s: float = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a row came to: medians of the cost of one operation, and quartiles of what its limits are about."""

    row: Row
    ours: float
    other: float | None
    low: float
    median: float
    high: float


def timed(run: Callable[[int], Awaitable[None]]) -> Batch:
    """Make a batch of an in-process loop; its cost is the CPU time of all threads, whatever else the machine does."""

    async def batch(n: int) -> float:
        started = process_time()
        await run(n)
        return process_time() - started

    return batch


async def measure(row: Row) -> Figure:
    """Open the row's sides, let them take turns, and take the medians."""
    async with AsyncExitStack() as opened:
        sides = [await opened.enter_async_context(side()) for side in (row.ours, row.other) if side is not None]
        sizes = [await _sized(batch, row.batch_s) for batch in sides]
        gc.collect()
        gc.freeze()
        try:
            rounds = [await _round(sides, sizes, turned=turn % 2 == 1) for turn in range(row.pairs)]
        finally:
            gc.unfreeze()
    medians = [statistics.median(costs) for costs in zip(*rounds, strict=True)]
    samples = [costs[0] / costs[1] if row.other else costs[0] * row.unit.scale for costs in rounds]
    low, median, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
    return Figure(row=row, ours=medians[0], other=medians[1] if row.other else None, low=low, median=median, high=high)


async def _sized(batch: Batch, batch_s: float) -> int:
    """How many operations take about `batch_s`; what it takes to find out is the warm-up."""
    if not batch_s:
        return 1
    await batch(1)
    n, cost = 1, await batch(1)
    while cost < batch_s / 4:
        n *= 2
        cost = await batch(n)
    return max(1, round(n * batch_s / cost))


async def _round(sides: list[Batch], sizes: list[int], *, turned: bool) -> list[float]:
    """Cost of one operation on each side, in the order of `sides`, whoever went first."""
    costs = [0.0] * len(sides)
    order = range(len(sides))
    for index in reversed(order) if turned else order:
        gc.collect()
        costs[index] = await sides[index](sizes[index]) / sizes[index]
    return costs
