"""Sends back what comes on the socket of its first argument: two processes and their loops, and nothing of toolplug."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvloop


class Echo(asyncio.Protocol):
    """Writes what it reads; `gone` is set at the end."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.gone.set()


async def main(descriptor: int) -> None:
    """Serve until the other end is closed."""
    ours = socket.socket(fileno=descriptor)
    ours.setblocking(False)
    _, echo = await asyncio.get_running_loop().create_connection(Echo, sock=ours)
    await echo.gone.wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
