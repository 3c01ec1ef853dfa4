"""Long work on the loop, in slices that nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

SLICE_S = 0.005

T = TypeVar("T")


async def in_slices(items: Iterable[T], *, slice_s: float = SLICE_S) -> list[T]:
    """All that the iterable gives; after each few milliseconds everybody else has a turn."""
    clock = asyncio.get_running_loop().time
    done: list[T] = []
    began = clock()
    for item in items:
        done.append(item)
        if clock() - began > slice_s:
            await asyncio.sleep(0)
            began = clock()
    return done
