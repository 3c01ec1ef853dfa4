"""Timers of waits that nearly always end before their time: one timer of the loop for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

_RESOLUTION_S = 0.001
"""Of uvloop's clock and timers: one may fire so much before its time."""


class Timers:
    """Calls back at the end of waits, of which uvloop takes 4 µs each for a timer that is started and cancelled.

    The loop's timer is set to the first end, and stays there when that wait is over before. When it fires, it looks at
    those who wait then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[Timer] = set()
        self._at = inf
        self._handle: asyncio.TimerHandle | None = None

    def call_later(self, delay_s: float, callback: Callable[[Any], object], argument: object) -> Timer:
        """Call back after so many seconds, unless the timer is cancelled."""
        at = self._loop.time() + delay_s
        timer = Timer(self._waiting, at, callback, argument)
        self._waiting.add(timer)
        if at < self._at:
            self._set(at)
        return timer

    def close(self) -> None:
        """Call nobody back any more."""
        self._waiting.clear()
        self._set(inf)

    def _set(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        self._handle = None if at == inf else self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        until = self._loop.time() + _RESOLUTION_S
        self._handle = None
        for timer in [each for each in self._waiting if each.at <= until]:
            timer.cancel()
            timer.callback(timer.argument)
        self._set(min((each.at for each in self._waiting), default=inf))


class Timer:
    """One of `Timers`."""

    __slots__ = ("_waiting", "argument", "at", "callback")

    def __init__(self, waiting: set[Timer], at: float, callback: Callable[[Any], object], argument: object) -> None:
        self._waiting = waiting
        self.at: float = at
        self.callback: Callable[[Any], object] = callback
        self.argument: object = argument

    def cancel(self) -> None:
        """Do not call back."""
        self._waiting.discard(self)
