"""An event stream with nothing around it: transports of asyncio, and one write to each for an event.

`python -m benchmarks.bare_stream` listens on a free port and writes the port as its only line. A connection whose first
bytes are a GET is a reader; what any other connection sends is an event, written to every reader as it is.
"""

from __future__ import annotations

import asyncio
import socket

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: ready\n\n"


class BareStream(asyncio.Protocol):
    """One connection."""

    def __init__(self, readers: set[asyncio.WriteTransport]) -> None:
        self._readers = readers
        self._pending = b""

    def connection_made(self, transport: asyncio.WriteTransport) -> None:  # pyright: ignore  uvloop's are not asyncio's
        """Keep what to write to."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take a reader in, or write an event to all of them."""
        if data.startswith(b"GET "):
            self._transport.write(HEAD)
            self._readers.add(self._transport)
            return
        self._pending += data
        if self._pending.endswith(b"\n\n"):
            event, self._pending = self._pending, b""
            for reader in self._readers:
                reader.write(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a reader."""
        self._readers.discard(self._transport)


async def _serve() -> None:
    readers: set[asyncio.WriteTransport] = set()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = await asyncio.get_running_loop().create_server(lambda: BareStream(readers), sock=listening)
        print(listening.getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
