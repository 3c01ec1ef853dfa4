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
from types import FrameType

from toolplug.cli.process_exit import leave_now

STOPPING = (signal.SIGTERM, signal.SIGINT)
BROKEN_OFF = 1
"""The exit code after a second signal, which does not wait for running calls."""

IDLE_END_S = 20.0
"""How long the process may take to end when no call runs: supervisors kill it after 30 s, as Kubernetes does."""
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
    """Call `stop` at the first SIGTERM or SIGINT, and `reload` at each SIGHUP, in the loop.

    The process ends within `within_s()` seconds after the first signal, and within `IDLE_END_S` after `is_busy()` was
    last true, whatever its providers do: a loop that they block can neither drain nor end, so a thread then ends the
    process, with exit code 0. Both functions are called from that thread too.

    Yields a function that takes the signals back from a provider, or a library that it loads.
    """
    handler = _Handler(asyncio.get_running_loop(), stop, reload, within_s, is_busy)
    before = {number: signal.signal(number, handler) for number in (*STOPPING, signal.SIGHUP)}
    try:
        yield handler.take_back
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        handler.finish()


class _Handler:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[], None],
        reload: Callable[[], None],
        within_s: Callable[[], float],
        is_busy: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._stop = stop
        self._reload = reload
        self._within_s = within_s
        self._is_busy = is_busy
        self._ended = threading.Event()
        self._stopping = False
        self._process = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            _die_of(number)
        elif number not in STOPPING:
            self._loop.call_soon_threadsafe(self._reload)
        elif self._stopping:
            os._exit(BROKEN_OFF)
        else:
            self._stopping = True
            self._loop.call_soon_threadsafe(self._stop)
            self._bound()

    def _bound(self) -> None:
        """Start a thread that ends the process if the loop has not; without it where no thread can be started."""
        try:
            threading.Thread(target=self._guard, args=(self._within_s(),), daemon=True).start()
        except RuntimeError as error:
            _LOG.warning("%s: only a second signal will end this process if a tool blocks the loop", error)

    def _guard(self, within_s: float) -> None:
        """End the process at the end of its time, unless everything has ended by itself."""
        begun = busy_at = time.monotonic()
        while True:
            now = time.monotonic()
            if self._is_busy():
                busy_at = now
            left_s = min(begun + within_s, busy_at + IDLE_END_S) - now
            if left_s <= 0:
                _give_up(now - begun)
            if self._ended.wait(min(left_s, LOOK_EVERY_S)):
                return

    def take_back(self) -> None:
        """Install this handler again where a signal has another one."""
        for number in (*STOPPING, signal.SIGHUP):
            other = signal.getsignal(number)
            if other is not self:
                signal.signal(number, self)
                name = signal.Signals(number).name
                _LOG.warning("%s was given to %s by a provider or a library of it; it is taken back", name, other)

    def finish(self) -> None:
        """Stop the guard thread: everything has ended."""
        self._ended.set()


def _die_of(number: int) -> None:
    """Let the signal have its default effect, in a process that a provider has forked."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _give_up(after_s: float) -> None:
    _LOG.warning("not everything has ended %g s after the signal; leaving it", after_s)
    leave_now(0)
