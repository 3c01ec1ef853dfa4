"""The host's end of a worker's WebSocket: the transport of a connection, and the process at its other end.

Binary messages are pieces of the stream of frames (`toolplug.apart.frames`); text messages are JSON between the host
and the worker that started the process: signs of life, what it is to run, and how the process has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from toolplug.apart.frames import FrameRefused, Peer
from toolplug.apart.limits import BEAT_S, CHUNK, MAX_NOTE, MAX_WORKER_MESSAGE, MISSED_BEATS, STREAMS_UNREAD
from toolplug.apart.values import Head
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.catalog.text import clean_text
from toolplug.errors import InvalidJson

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class WorkerLink:
    """Carries the frames of one connection over a WebSocket that was accepted; `run` until it ends.

    `alive` returns what a sign of life says. A link is the transport of its `peer`, which has no other, and stands for
    the process in the worker: `last_begun` is the number of the last call that may have begun there. A call whose bytes
    have left the host may have, unless the worker says that it has not.
    """

    def __init__(
        self, receive: Receive, send: Send, alive: Callable[[], Mapping[str, object]] = dict[str, object]
    ) -> None:
        self.peer: Peer | None = None
        self.draining: asyncio.Event = asyncio.Event()
        self._alive = alive
        self._receive = receive
        self._send = send
        self._outgoing: deque[bytes | str] = deque()
        self._unsent = 0
        self._most_unsent = STREAMS_UNREAD
        self._full = False
        self._wake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._ended = asyncio.Event()
        self._finishing = False
        self._missed = 0
        self._written = self._sent = 0
        self._calls: deque[tuple[int, int]] = deque()
        self._last_sent = 0
        self._reported: int | None = None
        self._exit_reason = ""
        self._waiting: dict[str, asyncio.Future[Head]] = {}
        self._early: dict[str, Head] = {}

    # The transport of the peer

    def write(self, data: bytes) -> None:
        """Send bytes of the stream of frames."""
        self._written += len(data)
        self._unsent += len(data)
        self._outgoing.extend(data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
        self._wake.set()
        if self._unsent > self._most_unsent and not self._full and self.peer is not None:
            self._full = True
            self.peer.pause_writing()

    def set_write_buffer_limits(self, high: int) -> None:
        """Let the peer know when more bytes than this wait, and when a quarter is left, as asyncio's transports do."""
        self._most_unsent = high

    def abort(self) -> None:
        """End the connection at once."""
        self._ended.set()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the worker has not taken yet."""
        return self._unsent

    def pause_reading(self) -> None:
        """Take no further message."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Take messages again."""
        self._may_read.set()

    # The process in the worker

    def note_call(self, number: int) -> None:
        """Remember where in the stream the message of a call ends, which has just been written."""
        self._calls.append((self._written, number))
        self._forget_sent()

    @property
    def last_begun(self) -> int:
        """The number of the last call that the process may have begun."""
        if self._reported is not None:
            return self._reported
        self._forget_sent()
        return self._last_sent

    @property
    def ended_for(self) -> str:
        """How the process has ended, as the worker says; empty if it has not said."""
        return self._exit_reason

    def _forget_sent(self) -> None:
        while self._calls and self._calls[0][0] <= self._sent:
            self._last_sent = self._calls.popleft()[1]

    def kill(self) -> None:
        """End the process: a worker that loses its host ends it."""
        self._ended.set()

    # The messages beside the frames

    def tell(self, note: str, **fields: object) -> None:
        """Send a message to the worker itself."""
        self._outgoing.append(dump_json({"note": note, **fields}).decode())
        self._wake.set()

    async def wait_for(self, note: str, within_s: float) -> Head:
        """Return the worker's message of this name. Raises `TimeoutError`, and `ConnectionResetError` at the end."""
        if note in self._early:
            return self._early.pop(note)
        if self._ended.is_set():
            raise ConnectionResetError("it is gone")
        waiter: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
        self._waiting[note] = waiter
        try:
            async with asyncio.timeout(within_s):
                return await waiter
        finally:
            del self._waiting[note]

    async def run(self) -> None:
        """Carry messages until the worker is gone, or `abort` or `kill` is called; then the peer has failed."""
        tasks = [asyncio.create_task(work()) for work in (self._read, self._write, self._beat, self._ended.wait)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ended.set()
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, FrameRefused):
                    self._exit_reason = self._exit_reason or f"sent {outcome}"
            self._fail(self._exit_reason or "has lost its connection")

    async def finish(self) -> None:
        """Send what has been written, and end."""
        self._finishing = True
        self._wake.set()
        await self._ended.wait()

    def _fail(self, reason: str) -> None:
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(ConnectionResetError(reason))
        if self.peer is not None:
            self.peer.fail(reason)

    async def _read(self) -> None:
        while True:
            await self._may_read.wait()
            message = await self._receive()
            self._missed = 0
            if message["type"] == "websocket.disconnect":
                return
            data, text = message.get("bytes"), message.get("text")
            if len(data or text or "") > MAX_WORKER_MESSAGE:
                raise FrameRefused("a message that is too long")
            if data is not None:
                if self.peer is None:
                    raise FrameRefused("a frame before its provider was started")
                self.peer.data_received(data)
            else:
                self._on_note(_read_note(cast("str", text)))

    def _on_note(self, head: Head) -> None:
        note = str(head.get("note"))
        match note:
            case "alive":
                pass
            case "draining":
                self.draining.set()
            case "ended":
                begun = head.get("begun")
                self._reported = begun if isinstance(begun, int) and begun >= 0 else None
                self._exit_reason = show_text(head.get("reason", ""))
                self._ended.set()
            case "hello" | "described":
                waiter = self._waiting.get(note)
                if waiter is None:
                    self._early[note] = head
                elif not waiter.done():
                    waiter.set_result(head)
            case _:
                raise FrameRefused(f"a note {note[:40]!r}")

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outgoing:
                item = self._outgoing[0]
                if isinstance(item, str):
                    await self._send({"type": "websocket.send", "text": item})
                else:
                    # Before it is sent: from here on it may arrive, whatever becomes of the connection.
                    self._sent += len(item)
                    await self._send({"type": "websocket.send", "bytes": item})
                    self._unsent -= len(item)
                    if self._full and self._unsent <= self._most_unsent // 4 and self.peer is not None:
                        self._full = False
                        self.peer.resume_writing()
                self._outgoing.popleft()
            if self._finishing:
                return

    async def _beat(self) -> None:
        while self._missed <= MISSED_BEATS:
            if not self._outgoing:  # what waits to be sent is a sign of life, too
                self.tell("alive", **self._alive())
            await asyncio.sleep(BEAT_S)
            self._missed += 1
        self._exit_reason = f"gave no sign of life for {MISSED_BEATS * BEAT_S:g} s"


def show_text(value: object, most: int = MAX_NOTE) -> str:
    """Return what a worker says as one line for logs, terminals and callers."""
    return " ".join(clean_text(str(value)[:most]).split())


def _read_note(text: str) -> Head:
    try:
        head = load_json(text.encode())
    except InvalidJson as error:
        raise FrameRefused(f"a message that is not JSON: {error}") from None
    if not isinstance(head, dict):
        raise FrameRefused("a message that is no object")
    return cast("Head", head)
