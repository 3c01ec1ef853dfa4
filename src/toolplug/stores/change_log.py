"""A log that tells each process on a store what has changed, and the task that follows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolplug.errors import StoreConflict, StoreError
from toolplug.stores.store import Events, Store

WAIT_S = 30.0
PAUSE_S = 1.0
"""Between two tries while the store cannot answer."""

_LOG = logging.getLogger("toolplug.stores")


class ChangeLog:
    """The log of one key, whose record has no value. Each method except `announce_done` may raise `StoreError`."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self.key: str = key

    async def announce(self, change: bytes) -> None:
        """Tell all processes that follow the log about a change that is already in the store."""
        await self._store.extend(self.key, events=[change])

    async def announce_done(self, change: bytes) -> None:
        """Announce a change without raising: it is done, and a store that fails now only delays other processes."""
        try:
            await self.announce(change)
        except StoreError as error:
            _LOG.warning("other processes do not hear in %s of what has changed: %s", self.key, error)

    async def position(self) -> int:
        """Return the position of the end of the log. The log is created if it does not exist."""
        with suppress(StoreConflict):
            await self._store.commit(self.key, b"", expected=0)
        record = await self._store.read(self.key)
        assert record is not None, "this record is never deleted"
        return record.position

    async def changes(self, after: int) -> Events:
        """Wait for changes after a position and return them; empty if none came for some seconds."""
        return await self._store.events(self.key, after, wait_s=WAIT_S)


class Following:
    """A task that follows a log of changes.

    It calls `again(change)` for each change, and `all_again()` at the start and whenever it may have missed one: the
    store did not answer, or had dropped events of the log.
    """

    def __init__(
        self,
        log: ChangeLog,
        again: Callable[[bytes], Awaitable[None]],
        all_again: Callable[[], Awaitable[None]],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._log = log
        self._again = again
        self._all_again = all_again
        self._pause_s = pause_s
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Call `all_again` and follow the log from the position before that. Raises `StoreError`."""
        position = await self._log.position()
        await self._all_again()
        self._task = asyncio.create_task(self._follow(position), name=f"toolplug-{self._log.key}")

    async def aclose(self) -> None:
        """Stop following, and wait until the task has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _follow(self, position: int) -> None:
        known = True
        while True:
            try:
                if not known:
                    position = await self._log.position()
                    await self._all_again()
                events = await self._log.changes(position)
                known = events.known
                for event in events.entries:
                    await self._again(event.data)
                    position = event.id
            except StoreError as error:
                if known:
                    _LOG.warning("changes of others (%s) are not heard: %s", self._log.key, error)
                known = False
                await asyncio.sleep(self._pause_s)
