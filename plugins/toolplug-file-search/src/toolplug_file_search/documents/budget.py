"""A limit of CPU time for one step of reading a document, in the worker process."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(Exception):
    """The step took longer than it may."""


@contextmanager
def at_most(seconds: float) -> Generator[None]:
    """Raise `OutOfTime` in the block after so many seconds of CPU time. Only in the main thread, and not nested.

    A call into C is interrupted when it returns; what never returns is ended by the limit of the whole document.
    """
    before = signal.signal(signal.SIGVTALRM, _raise)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise(number: int, frame: FrameType | None) -> None:
    raise OutOfTime
