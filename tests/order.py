"""The order of the tests of several workers: each begins with its share of those marked `long`.

A test of minutes that starts last is waited for by workers that have nothing left to do. Workers begin with equal parts
of the list of tests and then take from the ends of the others' parts, so that each part has long ones first.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long tests first in the part of each worker; the others stay in their order."""
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    seconds = [next((marker.args[0] for marker in item.iter_markers("long")), 0) for item in items]
    items[:] = [items[number] for number in order(seconds, workers)]


def order(seconds: Sequence[float], workers: int) -> list[int]:
    """Return the order of tests that take so many seconds; 0 is for one that is not long.

    Each long test, the longest first, goes to the worker that has the least of them; the other tests fill the parts up.
    """
    long = sorted((number for number, length in enumerate(seconds) if length), key=lambda number: -seconds[number])
    shares: list[list[int]] = [[] for _ in range(workers)]
    for number in long:
        min(shares, key=lambda share: sum(seconds[each] for each in share)).append(number)
    others = [number for number, length in enumerate(seconds) if not length]
    ordered: list[int] = []
    for begun, share in enumerate(shares):
        part = (len(seconds) - len(ordered)) // (workers - begun)  # as xdist divides them
        more = max(part - len(share), 0)
        ordered += [*share, *others[:more]]
        others = others[more:]
    return ordered
