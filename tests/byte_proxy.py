"""A proxy between a client and a server of the tests, which passes bytes on and can be told not to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Self


class Proxy:
    """Passes bytes on; it can delay replies, end connections in the middle of one, be silent, and be unreachable.

    `silent`: connections stay open, and nothing passes. `unreachable`: connections are refused, and `cut` ends those
    that are open. `connections` counts those that were made.
    """

    def __init__(self) -> None:
        self.cutting = False
        self.cuts = 0
        self.connections = 0
        self.longest_delay_s = 0.0
        self.silent = False
        self.unreachable = False
        self.port = 0
        self._numbers = random.Random(17)
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End all connections."""
        for writer in tuple(self._open):
            writer.close()

    @asynccontextmanager
    async def to(self, port: int) -> AsyncGenerator[Self]:
        """Listen on `self.port` for a server."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                if self.unreachable:
                    raise ConnectionRefusedError
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            self.connections += 1
            both = {writer, far_writer}
            self._open |= both
            try:
                await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer, replies=True))
            finally:
                self._open -= both

        listening = await asyncio.start_server(connected, "127.0.0.1")
        self.port = listening.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listening.close()
            self.silent = False
            self.cut()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                while self.silent:
                    await asyncio.sleep(0.05)
                if replies:
                    await asyncio.sleep(self._numbers.uniform(0, self.longest_delay_s))
                    if self.cutting and len(data) > 3 and self._numbers.random() < 0.1:
                        self.cuts += 1
                        writer.write(data[: len(data) // 2])
                        await writer.drain()
                        break
                writer.write(data)
                await writer.drain()
        writer.close()
