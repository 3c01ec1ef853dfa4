"""Where the events of a response go out; a connection that takes nothing is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from types import TracebackType
from typing import Self

from toolplug.http.exchange import Exchange

STUCK_S = 300.0
"""So long a connection may take nothing."""


class Outlet:
    """Sends chunks inside this scope. It looks now and then whether one is stuck: cheaper than a timer for each."""

    def __init__(self, exchange: Exchange, hang_up: Callable[[], None], *, stuck_s: float = STUCK_S) -> None:
        self._exchange = exchange
        self._hang_up = hang_up
        self._stuck_s = stuck_s
        self._loop = asyncio.get_running_loop()
        self._since = inf
        self._timer = self._loop.call_later(stuck_s, self._look)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    async def send(self, chunk: bytes) -> None:
        """Send one chunk; the caller is cancelled where the client never takes it."""
        self._since = self._loop.time()
        await self._exchange.send_chunk(chunk)
        self._since = inf

    def _look(self) -> None:
        left = self._since + self._stuck_s - self._loop.time()
        if left <= 0:
            self._hang_up()
        else:
            self._timer = self._loop.call_later(min(left, self._stuck_s), self._look)
