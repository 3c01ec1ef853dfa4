"""Connections whose clients take nothing of what is sent to them: no end waits for those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Protocol

STUCK_S = 2.0


class Connection(Protocol):
    """What is known of a connection."""

    @property
    def transport(self) -> asyncio.Transport: ...


@asynccontextmanager
async def broken_off(connections: Collection[Connection]) -> AsyncGenerator[None]:
    """Break off each connection that has something to take and takes nothing for `STUCK_S`, while this is open."""
    breaking = asyncio.create_task(_break_off(connections), name="toolplug-stuck-connections")
    try:
        yield
    finally:
        breaking.cancel()


async def _break_off(connections: Collection[Connection]) -> None:
    before: dict[Connection, int] = {}
    while True:
        waiting = {connection: connection.transport.get_write_buffer_size() for connection in connections}
        for connection, size in waiting.items():
            if 0 < before.get(connection, 0) <= size:
                connection.transport.abort()
        before = waiting
        await asyncio.sleep(STUCK_S)
