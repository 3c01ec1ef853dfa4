"""A plain HTTP/1.1 client for an event loop, with as little as it can do."""

from __future__ import annotations

import asyncio


class Caller(asyncio.Protocol):
    """A connection that stays open, with one request at a time; anything but success is raised."""

    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def connected(cls, port: int) -> Caller:
        """Connect to a server of the loopback."""
        _, caller = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return caller

    async def ask(self, message: bytes) -> bytes:
        """Send a request and return the body of its answer."""
        self._received = b""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.WriteTransport) -> None:  # pyright: ignore  it is a socket's
        """Keep what to write to."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Give the answer once it is whole."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or self._answer is None or self._answer.done():
            return
        if not head.startswith(b"HTTP/1.1 2"):
            self._answer.set_exception(RuntimeError(self._received.decode()))
        elif len(body) >= int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0):
            self._answer.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let nobody wait for an answer that cannot come."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or RuntimeError("the server closed the connection"))
