"""A connection for each call, for callers whose session there is none to keep it for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from toolplug.catalog.call import Report
from toolplug.mcp.connection import Answer, Connect
from toolplug.mcp.endings import Endings
from toolplug.mcp.line import ServerDown
from toolplug.mcp.link import Link
from toolplug.mcp.restarts import Restarts
from toolplug.mcp.server import Server


class LoneLine:
    """Implements `toolplug.mcp.line.Line`: every call has a server of its own, which ends after its answer.

    A server that cannot be started is left alone for a while by all of them.
    """

    def __init__(self, server: Server, connect: Connect, endings: Endings) -> None:
        self._server = server
        self._connect = connect
        self._endings = endings
        self._restarts = Restarts()
        self._links: set[Link] = set()
        self._ended = False

    async def call(self, name: str, arguments: Mapping[str, object], report: Report | None) -> Answer:
        """Run a tool. Raises `ServerDown`, `ServerRefused` and `BadAnswer`."""
        pause = self._restarts.pause_s()
        if pause or self._ended:
            raise ServerDown(self._server.name.id, retry_after_s=pause or None)
        link = Link(self._server, self._connect, _not_heard)
        self._links.add(link)
        try:
            return await link.call(name, arguments, report)
        except ServerDown:
            if not (link.was_open or self._ended):
                self._restarts.failed()
            raise
        finally:
            self._links.discard(link)
            self._endings.begin(link.aclose())

    async def aclose(self) -> None:
        """End the servers of the calls that run."""
        self._ended = True
        await asyncio.gather(*(link.aclose() for link in self._links))


def _not_heard() -> None:
    """One call hears of no changes."""
