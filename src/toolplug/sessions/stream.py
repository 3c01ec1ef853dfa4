"""A session's event stream: the log is followed once and fanned out to readers, each with a bounded queue.

The log is read from the store, so that every reader hears each event once and in order, whichever process wrote it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from secrets import token_hex

import orjson

from toolplug.errors import StoreError
from toolplug.execution.accounting import timestamp
from toolplug.sessions.events import (
    EVERYBODY,
    GONE,
    PLUGIN,
    LogEntry,
    event_id,
    frame,
    is_logged,
    position_of,
    read_entry,
    read_event_id,
    told_as,
    told_id,
)
from toolplug.sessions.session_log import SessionLog
from toolplug.sessions.session_tool import StreamRole
from toolplug.sessions.shared import HEARTBEAT_S, Background, SessionCallbacks, SessionCounters
from toolplug.stores.store import Event, Store

MAX_WAITING_EVENTS = 256
MAX_WAITING_BYTES = 1024 * 1024


class Reader:
    """Takes frames from its feed at once and gives them to whoever writes the stream.

    A reader that is too slow is lost: what waited is dropped, and `catch_up` gives it a new beginning when it is next
    read. A frame that is too large by itself is not too much: it waits alone. `after` is the position up to which the
    beginning says everything, `told` the newest id of what it alone was told. `on_beat` is called whenever its feed
    beats, whether or not it is told so; `on_room`, if there is one, once when what waits has been read.
    """

    __slots__ = (
        "_bell",
        "_catch_up",
        "_closed",
        "_frames",
        "_loop",
        "_size",
        "after",
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
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._bell: asyncio.Future[None] | None = None

    @property
    def closed(self) -> bool:
        """Does nothing more come than what waits."""
        return self._closed

    @property
    def idle(self) -> bool:
        """Does nothing wait."""
        return not self._frames and self.lost is None

    def push(self, position: int, frame: bytes) -> None:
        """Take a frame, unless what it says has been given already."""
        if position > self.after:
            self._take(frame)

    def last_id(self, position: int) -> int:
        """The newest id that it has when it has been told the log up to this position."""
        return max(event_id(max(position, self.after)), self.told)

    def tell(self, event: str, data: bytes, position: int) -> int | None:
        """Take what it alone is told, behind the log up to this position: its id, None where there is no room for it.

        There is none where too much waits, and where all ids behind that position are used up.
        """
        told = self.last_id(position) + 1
        chunk = frame(event, data, told)
        if self.lost is not None or self._closed or is_logged(told) or (self._frames and self._is_much(len(chunk))):
            return None
        self.told = told
        self._take(chunk)
        return told

    def _is_much(self, more: int) -> bool:
        return len(self._frames) >= MAX_WAITING_EVENTS or self._size + more > MAX_WAITING_BYTES

    def _take(self, frame: bytes) -> None:
        if self.lost is not None or self._closed:
            return
        self._frames.append(frame)
        self._size += len(frame)
        if len(self._frames) > MAX_WAITING_EVENTS or (self._size > MAX_WAITING_BYTES and len(self._frames) > 1):
            self.lose("slow_reader")
        self._ring()

    def begin(self, position: int, chunk: bytes) -> None:
        """Start, or start again, with these frames, which say everything up to the position; not where it has ended."""
        if self._closed:
            return
        self.after = position
        self.lost = None
        self._frames = [chunk]
        self._size = len(chunk)

    def lose(self, reason: str) -> None:
        """Drop what waits: the reader begins again, unless it has ended."""
        if self._closed:
            return
        self._frames.clear()
        self._size = 0
        self.lost = reason
        self._ring()

    def close(self, last: bytes = b"") -> None:
        """End the stream after what waits and this last frame."""
        if self._closed:
            return
        self._closed = True
        self.lost = None
        if last:
            self._frames.append(last)
        self._ring()

    async def next(self) -> bytes:
        """Everything that waits, as soon as there is something; empty when the stream is over. Raises `StoreError`."""
        while True:
            if self.lost is not None and not self._closed:
                await self._catch_up(self)
            if self._frames:
                return self.taken()
            if self._closed:
                return b""
            await self.rung()

    def taken(self) -> bytes:
        """Everything that waits; empty where nothing does."""
        frames, self._frames = self._frames, []
        self._size = 0
        if self.on_room is not None:
            on_room, self.on_room = self.on_room, None
            on_room()
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def rung(self) -> asyncio.Future[None]:
        """Is done when there is something to do for whoever reads."""
        bell = self._bell = self._loop.create_future()
        return bell

    def _ring(self) -> None:
        bell = self._bell
        if bell is not None and not bell.done():
            bell.set_result(None)


def _nothing() -> None:
    pass


_LOG = logging.getLogger("toolplug.sessions")

_WAIT_S = 60.0
_RETRY_S = 0.5


class EventFanout:
    """The open streams of one session. Follows the log while there are any."""

    def __init__(
        self,
        key: str,
        store: Store,
        logbook: SessionLog,
        session: SessionCallbacks,
        background: Background,
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
        """A new stream: from its last event on where the log holds that, else from a snapshot. Raises `StoreError`.

        It is closed already where the session ended meanwhile.
        """
        reader = Reader(role, self._caught_up)
        if last_event_id is None or not await self._resumed(reader, last_event_id):
            await self._begin(reader, None if last_event_id is None else "unknown_event_id")
        if self._over:
            self._close(reader)
        return reader

    def tell(self, stream: str, event: str, data: bytes, logged: bytes) -> bool:
        """Tell one stream at once, and the log soon what it shall hold of it.

        False where the stream has no room now; the session hears when it may have.
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
        """Forget this stream."""
        reader.close()
        self._readers.pop(reader.id, None)
        if not self._readers and self._following is not None:
            self._following.cancel()
            self._following = None
            self._stop_heartbeat()

    def dismiss(self, reader: Reader, code: str, message: str) -> None:
        """End one stream with an error.

        The error has no id where the reader has missed something: it may come back and must not go on behind that.
        """
        last = None if reader.lost is not None else reader.last_id(self._position)
        reader.close(frame("error", orjson.dumps({"code": code, "message": message}), last))

    def end(self, code: str, message: str) -> None:
        """End every stream with an error, also those that are about to open."""
        self._final_error = orjson.dumps({"code": code, "message": message})
        self.stop()

    def stop(self) -> None:
        """End every stream, also those that are about to open; it beats on for those that do not take their end."""
        self._over = True
        for reader in self.readers:
            self._close(reader)

    def _close(self, reader: Reader) -> None:
        said = self._final_error
        reader.close(frame("error", said, reader.last_id(self._position)) if said else b"")

    async def _resumed(self, reader: Reader, last_event_id: str) -> bool:
        last = read_event_id(last_event_id)
        if last is None:
            return False
        position = position_of(last)
        frames = [frame("connected", self._session.resumed(), last)]
        page = await self._logbook.after(last)
        while page.known:
            for event in page.entries:
                entry = read_entry(event.data)
                position = event.id
                if _is_for(entry.audience, reader):
                    frames.append(frame(entry.event, entry.data, event_id(position)))
            if self._joined(reader, position):
                reader.told = last
                reader.begin(position, b"".join(frames))
                return True
            page = await self._logbook.after(event_id(position))
        return False

    async def _begin(self, reader: Reader, resync: str | None) -> None:
        """Join with the record as one moment saw it; `resync` is why the reader must forget what it knew."""
        while True:
            record = await self._store.read(self._key)
            if record is None:
                self._session.over()
            if record is None or reader.closed:
                return
            if self._joined(reader, record.position):
                break
        last = reader.last_id(record.position)
        chunk = frame("connected", self._session.connected(record), last)
        if resync is not None:
            self._counters.resyncs[resync] += 1
            chunk = frame("resync", orjson.dumps({"reason": resync}), last) + chunk
        reader.begin(record.position, chunk)

    async def _caught_up(self, reader: Reader) -> None:
        await self._begin(reader, reader.lost or "slow_reader")
        self._session.began_again(reader.role, reader.id)

    def _joined(self, reader: Reader, position: int) -> bool:
        """Make the reader one of the feed's, unless something after the position has been told already."""
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
        """Tell what the log has to tell next. Where the store fails half-way, the rest is told the next time."""
        page = await self._store.events(self._key, self._position, wait_s=_WAIT_S)
        if not page.known:
            await self._begin_again()
        for event in page.entries:
            await self._tell(event)

    async def _begin_again(self) -> None:
        """The log does not hold the position any more: every reader begins again."""
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

    def _stop_heartbeat(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    def _beat(self) -> None:
        """One beat for all: a timer takes as much memory as the rest of an idle reader."""
        self._beat_later()
        data = b'{"timestamp":"%s"}' % timestamp(self._session.now()).encode()
        for reader in self.readers:
            if reader.idle:
                reader.push(reader.after + 1, frame("heartbeat", data, reader.last_id(self._position)))
            reader.on_beat()


def _is_for(audience: str, reader: Reader) -> bool:
    return audience == EVERYBODY or (audience == PLUGIN and reader.role == "plugin")
