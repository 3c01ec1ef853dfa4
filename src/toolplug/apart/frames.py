"""The messages between a host and the process of a provider: frames on a socket, requests with answers, and credit.

    4 bytes   length of all that follows
    1 byte    kind
    4 bytes   length of the head
              the head, JSON
              raw bytes: the text of a result, a piece of a body, the value of a record

Not HTTP or pickle: values must stay exact (integers over 64 bits), a body must not be copied into JSON, and what a
stranger's process sends must not run code when it is read.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import inf
from time import perf_counter
from typing import Any, NamedTuple, cast

from toolplug.apart.limits import CREDIT, MAX_ASKED, PIECE, PIECE_COST, STREAMS_UNREAD, TURN_S
from toolplug.apart.values import NOT_VALID, Head, decode_error, encode_error
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.errors import InvalidJson, ToolplugError

CALL, RESULT, CANCEL = b"c", b"r", b"x"
"""Of a call: its beginning, its result, and the wish that it ends."""
ASK, ANSWER, NOTE = b"q", b"a", b"n"
"""A request, its answer, and what has none."""
_OF_REQUESTS = frozenset((ASK, ANSWER, CANCEL))
REQUEST, RESPONSE, PIECE_OF, GRANT = b"h", b"s", b"p", b"g"
"""Of a route: the request, the head of its response, a piece of either body, and more credit for one."""

PROTOCOL = 1
"""The number of these messages: it rises with a change that the other side must know of; 0 are those without a number.

A host speaks its own and the one before, so that an environment may be updated after the host.
"""
BEGUN = struct.Struct("=Q")
"""In the memory of both: the number of the last call that the process has begun."""
_PREFIX = struct.Struct(">IcI")
_LENGTH = struct.Struct(">I")
_BEGIN, _LENGTH_SIZE = _PREFIX.size, _LENGTH.size
_AFTER_LENGTH = _BEGIN - _LENGTH_SIZE
_pack, _unpack = _PREFIX.pack, _PREFIX.unpack_from


class FrameRefused(ToolplugError):
    """What the other side sent is no message, or is too long."""


class Frame(NamedTuple):
    """One message."""

    kind: bytes
    head: Head
    body: bytes


_quick_frame: Callable[[type[Frame], tuple[object, ...]], Frame] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def encode_frame(kind: bytes, head: Mapping[str, object], body: bytes = b"") -> bytes:
    """Return the bytes of a message. Raises `TypeError` or `ValueError` for a head that is not JSON."""
    text = dump_json(head)
    return b"".join((_pack(_AFTER_LENGTH + len(text) + len(body), kind, len(text)), text, body))


class FrameReader:
    """Cuts bytes into messages of at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes: int = max_bytes
        self._received: bytes | bytearray = b""
        self._start = 0

    def add(self, data: bytes) -> None:
        received, start = self._received, self._start
        self._start = 0
        if start == len(received):
            # Nearly always: what was received before was whole messages, and what comes is not copied.
            self._received = data
        elif isinstance(received, bytearray):
            del received[:start]
            received += data
        else:
            self._received = bytearray(received[start:])
            self._received += data

    @property
    def rest(self) -> bytes:
        """What was received after the last message that was yielded."""
        return bytes(self._received[self._start :])

    @property
    def is_empty(self) -> bool:
        """Whether all that was received has been taken."""
        return self._start == len(self._received)

    def take(self) -> Frame | None:
        """Return the next message, None if it is not whole yet.

        Raises `FrameRefused`; of a message that is too long nothing is read.
        """
        received, start = self._received, self._start
        there = len(received) - start
        if there < _BEGIN:
            return None
        length, kind, head_length = _unpack(received, start)
        if length > self.max_bytes:
            raise FrameRefused(f"a message of {length} bytes, and {self.max_bytes} are allowed")
        if head_length > length - _AFTER_LENGTH:
            raise FrameRefused("a message whose head is longer than itself")
        if there < _LENGTH_SIZE + length:
            return None
        begin, end = start + _BEGIN, start + _LENGTH_SIZE + length
        # Before it is handled: whoever stops here goes on with the next one.
        self._start = end
        head = bytes(received[begin : begin + head_length])
        body = bytes(received[begin + head_length : end])
        return _quick_frame(Frame, (kind, _read_head(head), body))

    def __iter__(self) -> Iterator[Frame]:
        """Yield the messages that are whole, like `take`."""
        return iter(self.take, None)


def _read_head(text: bytes) -> Head:
    try:
        head = load_json(text)
    except InvalidJson as error:
        raise FrameRefused(f"a message whose head is not JSON: {error}") from None
    if not isinstance(head, dict):
        raise FrameRefused("a message whose head is no object")
    return cast("Head", head)


Answer = tuple[Mapping[str, object], bytes]
"""The head and the raw bytes of an answer."""


class Peer(asyncio.Protocol, ABC):
    """One end of the socket: sends and receives messages, asks and answers.

    A subclass has `on_frame` for the messages of calls and routes, `answer` for what the other side asks, and `on_lost`
    for the end, which comes once, with the reason. `most_unread` bytes may wait for the other side.
    """

    def __init__(self, max_bytes: int) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.reader: FrameReader = FrameReader(max_bytes)
        self.numbers: itertools.count[int] = itertools.count(1)
        self.lost: str | None = None
        self.most_unread: float = inf
        self.transport: Any = None
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._reading = False
        self._full = False
        self._streams: deque[asyncio.Future[None]] = deque()

    @abstractmethod
    def on_frame(self, frame: Frame) -> None:
        """Handle a message of a call or a route. Raises `FrameRefused`."""

    @abstractmethod
    async def answer(self, asked: str, head: Head, body: bytes) -> Answer:
        """Answer what the other side asks. What it raises is raised there."""

    def on_lost(self, reason: str) -> None:
        """Take note of the end of the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport
        self.transport.set_write_buffer_limits(high=STREAMS_UNREAD)

    def pause_writing(self) -> None:
        """Hold the streams: the transport has `STREAMS_UNREAD` bytes."""
        self._full = True

    def resume_writing(self) -> None:
        """Let the streams go on."""
        self._full = False
        self._wake_stream()

    async def wait_for_room(self) -> None:
        """Wait while too much is unread. Raises `ConnectionResetError` after the end of the connection."""
        while self._full and self.lost is None:
            turn: asyncio.Future[None] = self.loop.create_future()
            self._streams.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake_stream()
                raise
        if self.lost is not None:
            raise ConnectionResetError(self.lost)

    def send_piece(self, head: Mapping[str, object], body: bytes) -> None:
        """Send a piece of a stream; then the next stream has its turn. All at once would fill the transport again."""
        self.send(PIECE_OF, head, body)
        self._wake_stream()

    def _wake_stream(self) -> None:
        while self._streams and not self._full:
            turn = self._streams.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def connection_lost(self, exc: Exception | None) -> None:
        """End what waits for an answer."""
        self.fail("ended")

    def data_received(self, data: bytes) -> None:
        """Handle the messages that are whole."""
        self.reader.add(data)
        if not self._reading:
            self._read()

    def fail(self, reason: str) -> None:
        """Close the connection, and end what waits for an answer."""
        if self.lost is not None:
            return
        self.lost = reason
        if self.transport is not None:
            self.transport.abort()
        pending, self._pending = self._pending, {}
        for waiter in pending.values():
            if not waiter.done():
                waiter.set_exception(ConnectionResetError(reason))
        for task in [*self._answering]:
            task.cancel()
        for turn in self._streams:
            if not turn.done():
                turn.set_result(None)
        self.on_lost(reason)

    def send(self, kind: bytes, head: Mapping[str, object], body: bytes = b"") -> None:
        """Send a message; after the end it is dropped."""
        if self.lost is None:
            self.transport.write(encode_frame(kind, head, body))
            if self._full and self.unread > self.most_unread:
                # Later: what is sent may be noted after it.
                self.loop.call_soon(self.fail, "does not read what it is sent")

    @property
    def unread(self) -> int:
        """The bytes that the other side has not taken yet."""
        return self.transport.get_write_buffer_size()

    async def ask(self, asked: str, head: Mapping[str, object], body: bytes = b"") -> tuple[Head, bytes]:
        """Ask the other side, and return its answer. Raises what it raises, and `ConnectionResetError` at the end."""
        if self.lost is not None:
            raise ConnectionResetError(self.lost)
        number = next(self.numbers)
        waiter: asyncio.Future[Answer] = self.loop.create_future()
        self._pending[number] = waiter
        try:
            self.send(ASK, {**head, "id": number, "ask": asked}, body)
            found, value = await waiter
        except asyncio.CancelledError:
            self.send(CANCEL, {"ask": number})
            raise
        finally:
            self._pending.pop(number, None)
        wrong = found.get("error")
        if wrong is not None:
            raise decode_error(wrong)
        return cast("Head", found), value

    def _read(self) -> None:
        """Handle what was received, for a short time; a process that floods the socket waits for its next turn."""
        self._reading = False
        reader, until = self.reader, 0.0
        try:
            while (frame := reader.take()) is not None:
                self._handle(frame)
                # The usual end: one message was received, and no clock was read.
                if reader.is_empty or self.lost is not None:
                    return
                now = perf_counter()
                until = until or now + TURN_S
                if now > until:
                    self._reading = True
                    self.transport.pause_reading()
                    self.loop.call_soon(self._read_on)
                    return
        except (FrameRefused, *NOT_VALID) as error:
            self.fail(f"sent {error}" if isinstance(error, FrameRefused) else "sent a message that is not valid")

    def _read_on(self) -> None:
        if self.lost is not None:
            return
        self._read()
        if not self._reading:
            self.transport.resume_reading()

    def _handle(self, frame: Frame) -> None:
        kind, head, body = frame
        if kind not in _OF_REQUESTS or (kind == CANCEL and "ask" not in head):
            self.on_frame(frame)
        elif kind == ANSWER:
            waiter = self._pending.get(head["id"])
            if waiter is not None and not waiter.done():
                waiter.set_result((head, body))
        elif kind == ASK:
            number = head["id"]
            if len(self._answering) >= MAX_ASKED:
                wrong = encode_error(RuntimeError(f"more than {MAX_ASKED} requests at once"))
                self.send(ANSWER, {"id": number, "error": wrong})
                return
            task = self.loop.create_task(self._give_answer(number, head, body), name="toolplug-apart-answer")
            self._answering.add(task)
            task.set_name(f"toolplug-apart-answer-{number}")
            task.add_done_callback(self._answering.discard)
        else:
            named = f"toolplug-apart-answer-{head['ask']}"
            for task in self._answering:
                if task.get_name() == named:
                    task.cancel()

    async def _give_answer(self, number: int, head: Head, body: bytes) -> None:
        try:
            found, value = await self.answer(str(head["ask"]), head, body)
            # It counts as one that is answered until then: an answer may be long, and who asks need not read it.
            await self.wait_for_room()
            self.send(ANSWER, {**found, "id": number}, value)
            self._wake_stream()
        except asyncio.CancelledError:
            self.send(ANSWER, {"id": number, "error": encode_error(RuntimeError("it was cancelled"))})
            raise
        except BaseException as error:  # noqa: BLE001  code of a provider, or of the host's store
            self.send(ANSWER, {"id": number, "error": encode_error(error)})


class Outgoing:
    """A body on its way out, which waits while its reader has granted no more."""

    def __init__(self, peer: Peer, number: int) -> None:
        self._peer = peer
        self._number = number
        self._credit = CREDIT
        self._wake: asyncio.Future[None] | None = None

    def grant(self, size: int) -> None:
        """Take note that the reader has read so many bytes."""
        self._credit += size
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def write(self, body: bytes, *, more: bool) -> None:
        """Send a part of the body, in pieces. Raises `ConnectionResetError` after the end of the connection."""
        for start in range(0, max(len(body), 1), PIECE):
            piece = body[start : start + PIECE]
            while self._credit < len(piece) + PIECE_COST:
                if self._peer.lost is not None:
                    raise ConnectionResetError(self._peer.lost)
                self._wake = self._peer.loop.create_future()
                await self._wake
            await self._peer.wait_for_room()
            self._credit -= len(piece) + PIECE_COST
            self._peer.send_piece({"id": self._number, "more": more or start + PIECE < len(body)}, piece)


class Incoming:
    """A body on its way in: the pieces that were not read yet, of which `CREDIT` bytes are the most."""

    def __init__(self, peer: Peer, number: int) -> None:
        self._peer = peer
        self._number = number
        self._unread = 0
        self._items: deque[tuple[Head, bytes]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    def put(self, head: Head, body: bytes) -> None:
        """Add a piece. Raises `FrameRefused` for more than the credit."""
        self._unread += len(body) + PIECE_COST
        if self._unread > CREDIT:
            raise FrameRefused("more of a body than was asked for")
        self._items.append((head, body))
        self._notify()

    def end(self, error: BaseException) -> None:
        """Raise this error where the next piece is read."""
        self._error = error
        self._notify()

    async def get(self) -> tuple[Head, bytes]:
        """Return the next piece, and let the other side send as much again."""
        while not self._items:
            if self._error is not None:
                raise self._error
            self._wake = self._peer.loop.create_future()
            await self._wake
        head, body = self._items.popleft()
        size = len(body) + PIECE_COST
        self._unread -= size
        self._peer.send(GRANT, {"id": self._number, "size": size})
        return head, body

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
