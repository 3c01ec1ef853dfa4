"""Servers that list what a test tells them to, and a service that knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toolplug.parts.mcp.discovery.record import DiscoveryRecord, KnownServer, ListingFailed, ServerName
from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.stores.store import Store

TIMEOUT_S = 30.0
CLOCK = ServerName("clock")


def raw(name: str, description: str | None = "Does it.", **schema: object) -> dict[str, object]:
    """A tool as a server sends it."""
    return {"name": name, "description": description, "inputSchema": {"type": "object", **schema}}


class Server:
    """Lists `tools`, or fails with `error`; takes so long. `running` and `most` count its listings at once."""

    def __init__(self, name: ServerName = CLOCK, *tools: object, takes_s: float = 1.0) -> None:
        self.name = name
        self.tools: Sequence[object] = tools or (raw("now"),)
        self.takes_s = takes_s
        self.error: BaseException | None = None
        self.began: list[float] = []
        self.running = 0
        self.most = 0

    async def listing(self, fresh: bool = False) -> Sequence[object]:
        self.began.append(asyncio.get_running_loop().time())
        self.running += 1
        self.most = max(self.most, self.running)
        tools, error = self.tools, self.error
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.running -= 1
        if error is not None:
            raise error
        return tools

    def known(self, config_hash: str = "h1", *, pin: bool = False, timeout_s: float = TIMEOUT_S) -> KnownServer:
        return KnownServer(self.name, config_hash, self.listing, timeout_s, pin)

    def fails(self, text: str = "the command ended with 1") -> None:
        self.error = ListingFailed(text)

    def works(self) -> None:
        self.error = None


def service(store: Store) -> Discovery:
    """A service whose luck is that nothing is left out of a rest."""
    return Discovery(store, luck=lambda: 0.0)


def names(record: DiscoveryRecord) -> list[str]:
    return [tool.name for tool in record.tools]


async def turns(count: int = 30) -> None:
    """Let everybody go on who can."""
    for _ in range(count):
        await asyncio.sleep(0)
