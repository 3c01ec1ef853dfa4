"""Writes a session's log: what it shall tell at once, what was told without it soon."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from toolplug.errors import StoreError
from toolplug.sessions.events import LogEntry, entry_bytes, event_id, is_logged, position_of, read_entry, told_id
from toolplug.sessions.shared import Background
from toolplug.stores.store import KEPT_EVENTS, Events, Store

_LOG = logging.getLogger("toolplug.sessions")

_SOON_S = 0.2
_MANY = KEPT_EVENTS // 4
_MOST = KEPT_EVENTS // 2
"""What is written at once must leave in the log what its readers have still to read."""
_RETRY_S = 1.0


class SessionLog:
    """The log under one key. `over` is told that there is no record any more.

    What is written soon shares one change of the store, and is there for whoever reads the log through this. Of what
    the store does not take, no more than the newest is kept for another try.
    """

    def __init__(self, key: str, store: Store, background: Background, over: Callable[[], None]) -> None:
        self._key = key
        self._store = store
        self._background = background
        self._over = over
        self._late: deque[LogEntry] = deque(maxlen=_MOST)
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False
        self._closed = False

    async def write(self, *entries: LogEntry) -> bool:
        """Append these, behind all that is late; False where the session is over. Raises `StoreError`."""
        async with self._writing:
            late = self.late()
            appended = [*late, *entries]
            if not appended:
                return True
            try:
                logged = await self._store.extend(self._key, events=[entry_bytes(entry) for entry in appended])
            except StoreError:
                self._late = deque([*late, *self._late], _MOST)
                raise
        if not logged:
            self._over()
        return logged

    def write_soon(self, entry: LogEntry) -> None:
        """Append this, which has been told."""
        self._late.append(entry)
        if self._timer is None:
            self._write_after(_SOON_S)
        elif len(self._late) == _MANY:
            self._timer.cancel()
            self._begin_to_write()

    def late(self) -> list[LogEntry]:
        """What is not written yet; from now on it is the caller's to write."""
        late = [*self._late]
        self._late.clear()
        return late

    async def after(self, event: int | None, *, wait_s: float = 0.0) -> Events:
        """What the log holds after an event, None for all of it. Raises `StoreError`."""
        await self.write()
        return await logged_after(self._store, self._key, event, wait_s=wait_s)

    def close(self) -> None:
        """Write what is late, and nothing more after that."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._late:
            self._background.finish(self._write_late(), "session-log")

    def _write_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_to_write)

    def _begin_to_write(self) -> None:
        self._timer = None
        self._background.start(self._write_late(), "session-log")

    async def _write_late(self) -> None:
        try:
            await self.write()
        except StoreError as error:
            if not self._failing:
                _LOG.warning("the log of a session cannot be written: %s; trying until it can", error)
            self._failing = True
            if self._timer is None and not self._closed:
                self._write_after(_RETRY_S)
        else:
            self._failing = False


async def logged_after(store: Store, key: str, event: int | None, *, wait_s: float = 0.0) -> Events:
    """What a log holds after an event, None for all of it.

    After what one stream was told without the log comes everything that the stream had not been told by then. Raises
    `StoreError`.
    """
    if event is None or is_logged(event):
        return await store.events(key, None if event is None else position_of(event), wait_s=wait_s)
    page = await store.events(key, position_of(event))
    told = {entry: told_id(read_entry(entry.data)) for entry in page.entries}
    if event not in told.values():
        return Events(known=False)
    earlier = range(event_id(position_of(event)), event + 1)
    return Events(known=True, entries=tuple(entry for entry, at in told.items() if at not in earlier))
