"""Readers of event streams that cost as little as a reader can: plain sockets, watched together by one epoll."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from select import EPOLLIN, epoll
from types import TracebackType
from typing import Self

Seen = Callable[[int, bytes], None]
"""Is told of each event: the number of its reader, and what came since the event before it ended."""

END = b"\n\n"
_PATIENCE_S = 60.0


@dataclass(slots=True)
class _Reader:
    number: int
    stream: socket.socket
    rest: bytes


class Readers:
    """Many streams, numbered as they were opened. `closed` counts those that the server has ended."""

    def __init__(self, seen: Seen) -> None:
        self.closed: int = 0
        self._seen = seen
        self._epoll = epoll()
        self._readers: dict[int, _Reader] = {}
        self._received = memoryview(bytearray(1 << 20))

    def open(self, port: int, message: bytes, *, ready: bytes = END) -> None:
        """Ask for one more stream, and wait for what it begins with; this is not told."""
        stream = socket.create_connection(("127.0.0.1", port))
        stream.sendall(message)
        begin = b""
        while ready not in begin:
            received = stream.recv(1 << 20)
            if not received:
                raise RuntimeError(f"the server refused a stream: {begin.decode()}")
            begin += received
        stream.setblocking(False)
        self._readers[stream.fileno()] = _Reader(len(self._readers), stream, begin.rpartition(ready)[2])
        self._epoll.register(stream, EPOLLIN)

    def fileno(self) -> int:
        """For a loop that calls `drain` when there is something to read."""
        return self._epoll.fileno()

    def drain(self, wait_s: float = 0.0) -> None:
        """Tell what has come; where nothing has, wait for it."""
        for descriptor, _ in self._epoll.poll(wait_s, len(self._readers)):
            reader = self._readers[descriptor]
            count = reader.stream.recv_into(self._received)
            if not count:
                self.closed += 1
                self._epoll.unregister(descriptor)
                continue
            *events, reader.rest = (reader.rest + self._received[:count]).split(END)
            for event in events:
                self._seen(reader.number, event)

    def drain_for(self, seconds: float) -> None:
        """Read on for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.drain(left)

    def drain_until(self, done: Callable[[], bool]) -> None:
        """Read on until it is done; raises where that takes too long."""
        give_up_at = time.monotonic() + _PATIENCE_S
        while not done():
            self.drain(1.0)
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"the readers wait for events that do not come; {self.closed} streams are closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._epoll.close()
        for reader in self._readers.values():
            reader.stream.close()
