"""A list that is read again when it has changed: soon, but at most once a second, however often that is said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

SOON_S = 0.3
EVERY_S = 1.0

Pause = Callable[[float], Awaitable[None]]


class Relisting:
    """Calls `read`, which never raises, some time after each `due`; once for all that came meanwhile."""

    def __init__(self, read: Callable[[], Awaitable[None]], pause: Pause = asyncio.sleep) -> None:
        self._read = read
        self._pause = pause
        self._due = False
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    def due(self) -> None:
        """The list has changed."""
        self._due = True
        if self._task is None and not self._stopped:
            self._task = asyncio.create_task(self._until_read(), name="toolplug-mcp-relisting")

    def stop(self) -> None:
        """Read nothing any more."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """The same, and wait until it is so."""
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _until_read(self) -> None:
        await self._pause(SOON_S)
        while self._due:
            self._due = False
            await self._read()
            await self._pause(EVERY_S)
        self._task = None
