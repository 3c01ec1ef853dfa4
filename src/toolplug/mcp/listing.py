"""Listing the tools of one connection: before its first call, and again after `list_changed`, at most once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from toolplug.discovery.listing import ListReader
from toolplug.discovery.record import DiscoveryRecord, FoundTool, ServerState
from toolplug.mcp.connection import BadAnswer, ConnectionFailed, ServerConnection, ServerRefused

SOON_S = 0.3
EVERY_S = 1.0

Pause = Callable[[float], Awaitable[None]]


class Relisting:
    """Calls `read`, which never raises, some time after each `due`; once for all that came meanwhile."""

    def __init__(self, read: Callable[[], Awaitable[None]], pause: Pause = asyncio.sleep) -> None:
        self._read = read
        self._pause = pause
        self._due = False
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    def due(self) -> None:
        """The list has changed."""
        self._due = True
        if self._task is None and not self._stopped:
            self._task = asyncio.create_task(self._until_read(), name="toolplug-mcp-relisting")

    def stop(self) -> None:
        """Read nothing any more."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """The same, and wait until it is so."""
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _until_read(self) -> None:
        await self._pause(SOON_S)
        while self._due:
            self._due = False
            await self._read()
            await self._pause(EVERY_S)
        self._task = None


Heard = Callable[[Sequence[object]], None]
"""Is told what a server has listed, as it sent it; never raises."""

_LOG = logging.getLogger("toolplug.mcp")


class OwnListing:
    """`tools` are the last that were listed, None before. `changed` is told that they are others.

    `first` is told of the first list of each connection.
    """

    def __init__(self, server: str, *, first: Heard, changed: Callable[[], None], pause: Pause = asyncio.sleep) -> None:
        self._server = server
        self._reader = ListReader(server)
        self._first = first
        self._changed = changed
        self._connection: ServerConnection | None = None
        self._one_reading = asyncio.Lock()
        self._relisting = Relisting(self._read_again, pause)
        self._stopped = False
        self.tools: tuple[FoundTool, ...] | None = None

    async def begin(self, connection: ServerConnection) -> None:
        """Read the list of a new connection; where that fails, what was known stays."""
        self._connection = connection
        raw = await self._read(connection)
        if raw is not None:
            self._first(raw)

    def due(self) -> None:
        """The server says that its list has changed."""
        if self._connection is not None:
            self._relisting.due()

    def stop(self) -> None:
        """Tell nobody anything any more."""
        self._stopped = True
        self._relisting.stop()

    async def aclose(self) -> None:
        """The same, and wait until it is so."""
        self.stop()
        await self._relisting.aclose()

    async def _read_again(self) -> None:
        connection = self._connection
        if connection is not None and connection.open:
            await self._read(connection)

    async def _read(self, connection: ServerConnection) -> Sequence[object] | None:
        async with self._one_reading:
            try:
                raw = await connection.tools()
            except (ConnectionFailed, ServerRefused, BadAnswer) as error:
                _LOG.warning("MCP server %r does not list its tools: %s", self._server, error)
                return None
            known = ServerState(record=DiscoveryRecord(tools=self.tools or ()))
            listing = await self._reader.read(raw, known)
            if self._stopped:
                return None
            self.tools = listing.tools
            self._changed()
            return raw
