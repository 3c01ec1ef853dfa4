"""One open stream: what waits to be sent to it, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex

from toolplug.sessions.event_id import event_id, is_logged
from toolplug.sessions.frame import frame
from toolplug.sessions.vocabulary import StreamRole

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
