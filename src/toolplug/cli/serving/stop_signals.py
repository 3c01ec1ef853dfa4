"""The signals of `serve`: SIGTERM and SIGINT end it, the second one at once; SIGHUP reloads the configuration."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from toolplug.cli.event_loop import leave_now

STOPPING = (signal.SIGTERM, signal.SIGINT)
BROKEN_OFF = 1
"""The exit code after a second signal, which does not wait for running calls."""

_LOG = logging.getLogger("toolplug.cli.serve")


@contextmanager
def signals(
    *, stop: Callable[[], None], reload: Callable[[], None], within_s: Callable[[], float]
) -> Generator[Callable[[], None]]:
    """Call `stop` at the first SIGTERM or SIGINT, and `reload` at each SIGHUP, in the loop.

    The process ends within `within_s()` seconds after the first signal, whatever its tools do: a loop that a tool
    blocks can neither drain nor end, so a thread then ends the process, with exit code 0.

    Yields a function that takes the signals back from a provider, or a library that it loads.
    """
    handler = _Handler(asyncio.get_running_loop(), stop, reload, within_s)
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
    ) -> None:
        self._loop = loop
        self._stop = stop
        self._reload = reload
        self._within_s = within_s
        self._guard: threading.Timer | None = None
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
            self._bound(self._within_s())

    def _bound(self, within_s: float) -> None:
        """Start a thread that ends the process if the loop has not; without it where no thread can be started."""
        guard = threading.Timer(within_s, _give_up, (within_s,))
        guard.daemon = True
        try:
            guard.start()
        except RuntimeError as error:
            _LOG.warning("%s: only a second signal will end this process if a tool blocks the loop", error)
        else:
            self._guard = guard

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
        if self._guard is not None:
            self._guard.cancel()


def _die_of(number: int) -> None:
    """Let the signal have its default effect, in a process that a provider has forked."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _give_up(after_s: float) -> None:
    _LOG.warning("not everything has ended %g s after the signal; leaving it", after_s)
    leave_now(0)
