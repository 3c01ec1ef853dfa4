"""A plain HTTP/1.1 client: bytes out, bytes in, on a connection that stays open."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Self


def request(method: str, path: str, headers: Mapping[str, str] = MappingProxyType({}), body: bytes = b"") -> bytes:
    """The bytes of one HTTP/1.1 request on a connection that stays open."""
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*head, "", ""]).encode() + body


class Connection:
    """One request at a time; anything but success ends the run."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: bytes) -> None:
        """Send a request; `answer` must follow."""
        self._socket.sendall(message)

    def answer(self) -> bytes:
        """Read the body of one whole answer; one without a Content-Length has none."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._received()
        head, _, body = received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(received.decode())
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        while len(body) < length:
            body += self._received()
        return body

    def ask(self, message: bytes) -> bytes:
        """Send a request and return the body of its answer."""
        self.send(message)
        return self.answer()

    def _received(self) -> bytes:
        received = self._socket.recv(65536)
        if not received:
            raise RuntimeError("the server closed the connection")
        return received

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
