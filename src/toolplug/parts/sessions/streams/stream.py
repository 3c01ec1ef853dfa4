"""The event streams of a session, and its log, which is followed once and fanned out to readers with bounded queues.

The log is read from the store, so that every reader gets each event once and in order, whichever process wrote it.
Entries are written at once, or soon if their stream has received them already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from secrets import token_hex

import orjson

from toolplug.config.units import timestamp
from toolplug.errors import StoreError
from toolplug.net.sse import frame
from toolplug.parts.sessions.limits import HEARTBEAT_S, MAX_WAITING_BYTES, MAX_WAITING_EVENTS
from toolplug.parts.sessions.shared import SessionCallbacks, SessionCounters, SessionTasks
from toolplug.parts.sessions.streams.events import (
    EVERYBODY,
    GONE,
    PLUGIN,
    LogEntry,
    entry_bytes,
    event_id,
    is_logged,
    position_of,
    read_entry,
    read_event_id,
    told_as,
    told_id,
)
from toolplug.parts.sessions.tools.session_tool import StreamRole
from toolplug.stores.store import KEPT_EVENTS, Event, Events, Store

_LOG = logging.getLogger("toolplug.sessions")

_SOON_S = 0.2
_MANY = KEPT_EVENTS // 4
_MOST = KEPT_EVENTS // 2
"""Limits one write, so that it does not drop entries from the log that its readers have not read yet."""
_WRITE_AGAIN_S = 1.0


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
                # Back in front of those that have come since.
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
                self._write_after(_WRITE_AGAIN_S)
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


class Reader:
    """The queue of one stream: its feed appends frames, which the writer of the stream takes.

    A reader that is too slow loses its frames, and `catch_up` begins it again at the next read; a single frame may be
    of any size. `after` is the log position of its beginning, `told` the newest id of an event for this reader only.
    `lost` is the reason why frames were dropped, `closed` means that no frames follow those in the queue. `on_beat` is
    called at each heartbeat of the feed, `on_room` once when the queue has been read.
    """

    __slots__ = (
        "_bell",
        "_catch_up",
        "_frames",
        "_loop",
        "_size",
        "after",
        "closed",
        "id",
        "lost",
        "on_beat",
        "on_room",
        "role",
        "told",
    )

    def __init__(self, role: StreamRole, catch_up: Callable[[Reader], Awaitable[None]]) -> None:
        self.id: str = token_hex(8)
        self.role: StreamRole = role
        self.after: int = 0
        self.told: int = 0
        self.lost: str | None = None
        self.on_beat: Callable[[], None] = _nothing
        self.on_room: Callable[[], None] | None = None
        self._catch_up = catch_up
        self._frames: list[bytes] = []
        self._size = 0
        self.closed: bool = False
        self._loop = asyncio.get_running_loop()
        self._bell: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """True if the queue is empty and nothing was lost."""
        return not self._frames and self.lost is None

    def push(self, position: int, frame: bytes) -> None:
        """Append a frame, unless the beginning includes its position."""
        if position > self.after:
            self._take(frame)

    def last_id(self, position: int) -> int:
        """Return the newest event id of the reader once it has received the log up to this position."""
        return max(event_id(max(position, self.after)), self.told)

    def tell(self, event: str, data: bytes, position: int) -> int | None:
        """Append an event for this reader only, after the log up to this position, and return its id.

        Returns None if the queue has no room or all ids after that position are used.
        """
        told = self.last_id(position) + 1
        chunk = frame(event, data, told)
        full = len(self._frames) >= MAX_WAITING_EVENTS or self._size + len(chunk) > MAX_WAITING_BYTES
        if self.lost is not None or self.closed or is_logged(told) or (self._frames and full):
            return None
        self.told = told
        self._take(chunk)
        return told

    def _take(self, frame: bytes) -> None:
        if self.lost is not None or self.closed:
            return
        self._frames.append(frame)
        self._size += len(frame)
        if len(self._frames) > MAX_WAITING_EVENTS or (self._size > MAX_WAITING_BYTES and len(self._frames) > 1):
            self.lose("slow_reader")
        self._ring()

    def begin(self, position: int, chunk: bytes) -> None:
        """Begin, or begin again, with these frames, which cover the log up to the position; ignored if closed."""
        if self.closed:
            return
        self.after = position
        self.lost = None
        self._frames = [chunk]
        self._size = len(chunk)

    def lose(self, reason: str) -> None:
        """Drop the queue for this reason, so that the reader begins again; ignored if closed."""
        if self.closed:
            return
        self._frames.clear()
        self._size = 0
        self.lost = reason
        self._ring()

    def close(self, last: bytes = b"") -> None:
        """End the stream after the queue and this last frame."""
        if self.closed:
            return
        self.closed = True
        self.lost = None
        if last:
            self._frames.append(last)
        self._ring()

    async def next(self) -> bytes:
        """Wait for frames and return all of them; empty when the stream has ended. Raises `StoreError`."""
        while True:
            # Here and not when it was lost: a reader that takes nothing costs no reading of the store.
            if self.lost is not None and not self.closed:
                await self._catch_up(self)
            if self._frames:
                return self.take_frames()
            if self.closed:
                return b""
            await self.rung()

    def take_frames(self) -> bytes:
        """Take all frames from the queue; empty if there are none."""
        frames, self._frames = self._frames, []
        self._size = 0
        if self.on_room is not None:
            on_room, self.on_room = self.on_room, None
            on_room()
        # One write for all that wait.
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def rung(self) -> asyncio.Future[None]:
        """Return a future that is done when the reader has frames, is lost or is closed."""
        bell = self._bell = self._loop.create_future()
        return bell

    def _ring(self) -> None:
        bell = self._bell
        if bell is not None and not bell.done():
            bell.set_result(None)


def _nothing() -> None:
    pass


_WAIT_S = 60.0
_RETRY_S = 0.5


class EventFanout:
    """The open streams of one session; it follows the log while there are any."""

    def __init__(
        self,
        key: str,
        store: Store,
        logbook: SessionLog,
        session: SessionCallbacks,
        background: SessionTasks,
        counters: SessionCounters,
    ) -> None:
        self._key = key
        self._store = store
        self._logbook = logbook
        self._session = session
        self._background = background
        self._counters = counters
        self._position = 0
        self._readers: dict[str, Reader] = {}
        self._following: asyncio.Task[None] | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._over = False
        self._final_error = b""

    @property
    def readers(self) -> tuple[Reader, ...]:
        """The open streams."""
        return tuple(self._readers.values())

    async def open(self, role: StreamRole, last_event_id: str | None) -> Reader:
        """Open a stream after its last event if the log has that, else from a snapshot. Raises `StoreError`.

        The reader is closed already if the session has ended by then.
        """
        reader = Reader(role, self._caught_up)
        if last_event_id is None or not await self._resume(reader, last_event_id):
            await self._begin(reader, None if last_event_id is None else "unknown_event_id")
        if self._over:
            self._close(reader)
        return reader

    def tell(self, stream: str, event: str, data: bytes, logged: bytes) -> bool:
        """Send an event to one stream now, and log `logged` soon.

        Returns False if the stream has no room now; the session's `has_room` is called when it has been read.
        """
        reader = self._readers[stream]
        told = reader.tell(event, data, self._position)
        if told is None:
            reader.on_room = self._session.has_room
            return False
        self._counters.events[event] += 1
        self._logbook.write_soon(LogEntry(event, told_as(told), logged))
        return True

    def close(self, reader: Reader) -> None:
        """Remove a stream; without streams the log is no longer followed."""
        reader.close()
        self._readers.pop(reader.id, None)
        if not self._readers and self._following is not None:
            self._following.cancel()
            self._following = None
            if self._beating is not None:
                self._beating.cancel()
                self._beating = None

    def dismiss(self, reader: Reader, code: str, message: str) -> None:
        """End one stream with an error, which has no id if the reader has lost events and must not resume after it."""
        last = None if reader.lost is not None else reader.last_id(self._position)
        reader.close(frame("error", orjson.dumps({"code": code, "message": message}), last))

    def end(self, code: str, message: str) -> None:
        """End every stream with an error, also those that are being opened."""
        self._final_error = orjson.dumps({"code": code, "message": message})
        self.stop()

    def stop(self) -> None:
        """End every stream, also those that are being opened; heartbeats go on until the streams are removed."""
        self._over = True
        for reader in self.readers:
            self._close(reader)

    def _close(self, reader: Reader) -> None:
        said = self._final_error
        reader.close(frame("error", said, reader.last_id(self._position)) if said else b"")

    async def _resume(self, reader: Reader, last_event_id: str) -> bool:
        last = read_event_id(last_event_id)
        if last is None:
            return False
        position = position_of(last)
        frames = [frame("connected", self._session.resumed_data(), last)]
        page = await self._logbook.after(last)
        while page.known:
            for event in page.entries:
                entry = read_entry(event.data)
                position = event.id
                if _is_for(entry.audience, reader):
                    frames.append(frame(entry.event, entry.data, event_id(position)))
            if self._join(reader, position):
                reader.told = last
                reader.begin(position, b"".join(frames))
                return True
            # The feed has moved on while the log was read: the rest is read until both are at one position.
            page = await self._logbook.after(event_id(position))
        return False

    async def _begin(self, reader: Reader, resync: str | None) -> None:
        """Begin with a snapshot of the record; `resync` is the reason why the reader must discard its state."""
        while True:
            record = await self._store.read(self._key)
            if record is None:
                self._session.over()
            if record is None or reader.closed:
                return
            if self._join(reader, record.position):
                break
        last = reader.last_id(record.position)
        chunk = frame("connected", self._session.connected_data(record), last)
        if resync is not None:
            self._counters.resyncs[resync] += 1
            chunk = frame("resync", orjson.dumps({"reason": resync}), last) + chunk
        reader.begin(record.position, chunk)

    async def _caught_up(self, reader: Reader) -> None:
        await self._begin(reader, reader.lost or "slow_reader")
        self._session.began_again(reader.role, reader.id)

    def _join(self, reader: Reader, position: int) -> bool:
        """Add the reader to the feed; return False if the feed is past the position already."""
        if self._following is None:
            self._position = position
            self._readers[reader.id] = reader
            self._following = self._background.start(self._follow(), "session-feed")
            self._beat_later()
        elif self._position > position:
            return False
        self._readers[reader.id] = reader
        return True

    async def _follow(self) -> None:
        failing = False
        while not self._over:
            try:
                await self._follow_on()
                failing = False
            except StoreError as error:
                if not failing:
                    _LOG.warning("the log of a session cannot be read: %s; trying until it can", error)
                failing = True
                await asyncio.sleep(_RETRY_S)

    async def _follow_on(self) -> None:
        """Send the next entries of the log. If the store fails half-way, the next call sends the rest."""
        page = await self._store.events(self._key, self._position, wait_s=_WAIT_S)
        if not page.known:
            await self._begin_again()
        for event in page.entries:
            await self._tell(event)

    async def _begin_again(self) -> None:
        """Let every reader begin again, as the log no longer has the position."""
        record = await self._store.read(self._key)
        if record is None:
            self._session.over()
            return
        await self._session.refresh()
        self._position = record.position
        for reader in self.readers:
            reader.lose("log_lost")

    async def _tell(self, event: Event) -> None:
        entry = read_entry(event.data)
        if entry.revision > self._session.revision or entry.event == GONE:
            await self._session.refresh()
        # After the refresh, which may fail: the next round then sends this event.
        self._position = event.id
        if told_id(entry) is not None:
            return
        self._counters.events[entry.event] += 1
        told = frame(entry.event, entry.data, event_id(event.id))
        for reader in self._audience(entry):
            reader.push(event.id, told)

    def _audience(self, entry: LogEntry) -> tuple[Reader, ...]:
        if entry.audience == EVERYBODY:
            return self.readers
        return tuple(reader for reader in self._readers.values() if _is_for(entry.audience, reader))

    def _beat_later(self) -> None:
        self._beating = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)

    def _beat(self) -> None:
        """Send one heartbeat to all idle readers: a timer for each would double their memory."""
        self._beat_later()
        data = b'{"timestamp":"%s"}' % timestamp(self._session.now()).encode()
        for reader in self.readers:
            if reader.idle:
                # A position past its beginning, so that `push` takes it; a heartbeat is at no place of the log.
                reader.push(reader.after + 1, frame("heartbeat", data, reader.last_id(self._position)))
            reader.on_beat()


def _is_for(audience: str, reader: Reader) -> bool:
    return audience == EVERYBODY or (audience == PLUGIN and reader.role == "plugin")
