"""Conversations of the Responses API: sessions to toolsets that are opened for each."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

IDLE_S = 1800.0
"""After such a silence a conversation is over for its toolsets; they are opened again when it goes on."""
MOST = 10_000
"""Beyond it, the one in which something was said longest ago is over."""


class Conversations:
    """Those for which something may be open, the quietest first. `over` hears of each once, when it is over."""

    def __init__(self, over: Callable[[str], object], *, idle_s: float = IDLE_S) -> None:
        self._over = over
        self._idle_s = idle_s
        self._used: OrderedDict[str, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def use(self, key: str) -> None:
        """Something is said in it."""
        now = asyncio.get_running_loop().time()
        self._used[key] = now
        self._used.move_to_end(key)
        if len(self._used) > MOST:
            self._end(next(iter(self._used)))
        self._watch(now)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, now: float) -> None:
        if self._timer is None and self._used:
            quietest = next(iter(self._used.values()))
            delay = max(quietest + self._idle_s - now, 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for key in [key for key, used in self._used.items() if used + self._idle_s <= now]:
            self._end(key)
        self._watch(now)

    def _end(self, key: str) -> None:
        del self._used[key]
        self._over(key)
