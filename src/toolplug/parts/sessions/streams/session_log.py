"""The log of a session: entries are written at once, or soon if their stream has received them already."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from toolplug.errors import StoreError
from toolplug.parts.sessions.shared import SessionTasks
from toolplug.parts.sessions.streams.events import (
    LogEntry,
    entry_bytes,
    event_id,
    is_logged,
    position_of,
    read_entry,
    told_id,
)
from toolplug.stores.store import KEPT_EVENTS, Events, Store

_LOG = logging.getLogger("toolplug.sessions")

_SOON_S = 0.2
_MANY = KEPT_EVENTS // 4
_MOST = KEPT_EVENTS // 2
"""Limits one write, so that it does not drop entries from the log that its readers have not read yet."""
_RETRY_S = 1.0


class SessionLog:
    """The log under one key. `over` is called when a write finds no record.

    Entries of `write_soon` share one change of the store, and `after` includes them. If the store fails, the newest
    512 are kept for another try.
    """

    def __init__(self, key: str, store: Store, background: SessionTasks, over: Callable[[], None]) -> None:
        self._key = key
        self._store = store
        self._background = background
        self._over = over
        # Bounded: while the store fails, the oldest entries are dropped, and their readers begin again.
        self._late: deque[LogEntry] = deque(maxlen=_MOST)
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False
        self._closed = False

    async def write(self, *entries: LogEntry) -> bool:
        """Append these after all late entries; return False if the session is over. Raises `StoreError`."""
        async with self._writing:
            # Taken under the lock, so that two writes keep the order of the entries.
            late = self.late()
            appended = [*late, *entries]
            if not appended:
                return True
            try:
                logged = await self._store.extend(self._key, events=[entry_bytes(entry) for entry in appended])
            except StoreError:
                # Back in front of those that came meanwhile.
                self._late = deque([*late, *self._late], _MOST)
                raise
        if not logged:
            self._over()
        return logged

    def write_soon(self, entry: LogEntry) -> None:
        """Append an entry, which its stream has received, within 0.2 s."""
        self._late.append(entry)
        if self._timer is None:
            self._write_after(_SOON_S)
        elif len(self._late) == _MANY:
            self._timer.cancel()
            self._begin_to_write()

    def late(self) -> list[LogEntry]:
        """Take the entries that are not written yet; the caller must write them."""
        late = [*self._late]
        self._late.clear()
        return late

    async def after(self, event: int | None) -> Events:
        """Return the log after the event with this id, None for all of it. Raises `StoreError`."""
        await self.write()
        return await logged_after(self._store, self._key, event)

    def close(self) -> None:
        """Write the late entries in the background, and none after them."""
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
    """Return the log after the event with this id, None for all of it. Raises `StoreError`.

    After an event that a stream received before it was logged come all events that the stream had not received by then.
    """
    if event is None or is_logged(event):
        return await store.events(key, None if event is None else position_of(event), wait_s=wait_s)
    page = await store.events(key, position_of(event))
    told = {entry: told_id(read_entry(entry.data)) for entry in page.entries}
    if event not in told.values():
        return Events(known=False)
    # The ids that the stream had received by then: all from its position up to this event.
    earlier = range(event_id(position_of(event)), event + 1)
    return Events(known=True, entries=tuple(entry for entry, at in told.items() if at not in earlier))
