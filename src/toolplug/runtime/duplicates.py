"""Duplicate names, found in one pass.

`next(name for name in names if names.count(name) > 1)` reads the list again for each name: 40,000 names of a client,
389 KB, took ten seconds. `tests/project/test_bounded_work.py` forbids it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def first_repeated(names: Iterable[N]) -> N | None:
    """Return the first name that occurs a second time, None if each occurs once."""
    seen: set[N] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
