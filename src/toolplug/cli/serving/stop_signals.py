"""The signals of `serve`: SIGTERM and SIGINT end it, the second one at once; SIGHUP reloads the configuration."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from toolplug.cli.process_exit import GRACE_S, leave_now

STOPPING = (signal.SIGTERM, signal.SIGINT)
RELOADING: tuple[signal.Signals, ...] = tuple(filter(None, [getattr(signal, "SIGHUP", None)]))
"""None on Windows."""
BROKEN_OFF = 1
"""The exit code after a second signal, which does not wait for running calls."""

IDLE_END_S = 20.0
"""Seconds for the process to end when no call runs; supervisors such as Kubernetes kill it after 30 s."""
LOOK_EVERY_S = 0.2

_LOG = logging.getLogger("toolplug.cli.serve")


@contextmanager
def signals(
    *,
    stop: Callable[[], None],
    reload: Callable[[], None],
    within_s: Callable[[], float],
    is_busy: Callable[[], bool] = lambda: True,
) -> Generator[Callable[[], None]]:
    """Call `stop` at the first SIGTERM or SIGINT, and `reload` at each SIGHUP, in the running loop.

    A thread ends the process with exit code 0, even if a provider blocks the loop: `within_s()` seconds after the first
    signal, or `IDLE_END_S` after `is_busy()` was last true. Both functions are called from that thread too.

    Yields a function that takes the signals back from a provider, or a library that it loads.
    """
    handler = _Handler(asyncio.get_running_loop(), stop, reload, within_s, is_busy)
    before = {number: signal.signal(number, handler) for number in (*STOPPING, *RELOADING)}
    try:
        yield handler.take_back
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        handler.ended.set()


@dataclass(eq=False)
class _Handler:
    loop: asyncio.AbstractEventLoop
    stop: Callable[[], None]
    reload: Callable[[], None]
    within_s: Callable[[], float]
    is_busy: Callable[[], bool]
    ended: threading.Event = field(default_factory=threading.Event)
    stopping: bool = False
    process: int = field(default_factory=os.getpid)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self.process:  # a provider has forked: the signal has its default effect
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        elif number not in STOPPING:
            self.loop.call_soon_threadsafe(self.reload)
        elif self.stopping:
            os._exit(BROKEN_OFF)
        else:
            self.stopping = True
            # Not called here: a handler runs between any two lines of Python. `call_soon` alone would not wake a loop
            # that sleeps.
            self.loop.call_soon_threadsafe(self.stop)
            try:
                threading.Thread(target=self._guard, args=(self.within_s(),), daemon=True).start()
            except RuntimeError as error:  # the process can have no more threads
                _LOG.warning("%s: only a second signal will end this process if a tool blocks the loop", error)

    def _guard(self, within_s: float) -> None:
        """End the process when its time is over, unless `ended` is set before."""
        begun = busy_at = time.monotonic()
        while True:
            now = time.monotonic()
            if self.is_busy():
                busy_at = now
            left_s = min(begun + within_s, busy_at + IDLE_END_S) - now
            if left_s <= 0:
                # The reader of the output may have stopped: then neither the line nor the flush comes to an end.
                at_latest = threading.Timer(GRACE_S, os._exit, (0,))
                at_latest.daemon = True
                at_latest.start()
                _LOG.warning("not everything has ended %g s after the signal; leaving it", now - begun)
                leave_now(0)
            if self.ended.wait(min(left_s, LOOK_EVERY_S)):
                return

    def take_back(self) -> None:
        """Install this handler again for each signal that has another one."""
        for number in (*STOPPING, *RELOADING):
            other = signal.getsignal(number)
            if other is not self:
                signal.signal(number, self)
                name = signal.Signals(number).name
                _LOG.warning("%s was given to %s by a provider or a library of it; it is taken back", name, other)
