"""How often a process that serves for long looks for cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

THRESHOLDS = (10_000, 20, 50)
"""For `gc.set_threshold`: what Python allows between two full collections, times about 140.

A full collection looks at everything that is kept, sessions and their tools and streams too, and nothing runs
meanwhile: 0.1 s with a thousand sessions. Our own objects are freed without it.
"""


@contextmanager
def rarely_collected() -> Generator[None]:
    """Never look again at what stands by now, and seldom at what comes."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
