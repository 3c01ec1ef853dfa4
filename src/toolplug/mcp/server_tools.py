"""The tools of one MCP server as executors: one for everybody, one for each session, one for callers without any.

DiscoveryRecord ─▶ show ─▶ plans ─▶ `live` ── Link: one connection for everybody
                                     ├─ `lone` ── LoneLine: one for each call
                                     └─ `per_session()` ── SessionTools: one for each session
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.discovery.known_server import ListingFailed
from toolplug.discovery.record import DiscoveryRecord, FoundTool
from toolplug.execution.live import LiveCatalog
from toolplug.mcp.connection import BadAnswer, Connect, ConnectionFailed, OnChange, ServerConnection, ServerRefused
from toolplug.mcp.endings import Endings
from toolplug.mcp.link import Link
from toolplug.mcp.lone_line import LoneLine
from toolplug.mcp.own_listing import Heard
from toolplug.mcp.plans import Labels, Planner, over
from toolplug.mcp.reach import Reach
from toolplug.mcp.relisting import Pause
from toolplug.mcp.server import Server
from toolplug.mcp.session_tools import Known, SessionTools
from toolplug.toolsets.around import Around


class ServerTools:
    """Lists what it was shown, and starts the server when a tool is called.

    `on_change` hears that the shared connection lists something else, or has been opened. `first` is told what the
    connection of a session lists before its first call, which is what a listing of its own would find.
    """

    def __init__(
        self,
        server: Server,
        around: Around,
        connect: Connect,
        *,
        on_change: OnChange,
        first: Heard,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._server = server
        self._around = around
        self._connect = connect
        self._on_change = on_change
        self._first = first
        self._pause = pause
        self._labels = Labels(around.ledger, server.name)
        self._planner = Planner(server, around, self._labels)
        self._found: tuple[FoundTool, ...] = ()
        self._listed_once = False
        self._link: Link | None = None
        self._shared: Reach | None = None
        self._lone: Reach | None = None
        self._sessions: set[SessionTools] = set()
        self._endings = Endings()
        self._closed = False
        self.live: LiveCatalog = LiveCatalog(around.unknown)
        self.lone: LiveCatalog = self.live.view(self._over_lone_line)
        self._open()

    @property
    def server(self) -> Server:
        """The configuration that it goes by."""
        return self._server

    @property
    def unmatched_rules(self) -> tuple[str, ...]:
        """Tools that have a rule and that the server does not have, as far as its tools are known."""
        names = {tool.name for tool in self._found}
        return tuple(name for name in self._server.tools if name not in names) if self._listed_once else ()

    def show(self, record: DiscoveryRecord) -> None:
        """List the tools of this record from now on."""
        self._listed_once = record.status == "success" or bool(record.tools)
        if record.tools is self._found:
            return
        self._found = record.tools
        self._publish(self.live.catalog)

    def configure(self, server: Server) -> None:
        """Go by this configuration of the same server, and by the host's limits as they are now.

        Where it reaches the same server the connection stays and only plans change; else, and where it is disabled, the
        old connection ends when its calls have, and new calls go to a new one.
        """
        before, self._server = self._server, server
        self._planner = Planner(server, self._around, self._labels)
        if self._closed:
            return
        if not server.enabled or server.transport != before.transport:
            self._leave()
        if self._shared is None:
            self._open()
        self._publish(EMPTY_CATALOG)

    def per_session(self) -> SessionTools:
        """An executor whose server is nobody else's; starts nothing before its first call. Whoever asks closes it."""
        session = SessionTools(
            self._around.unknown,
            self._connect,
            self._endings,
            self._known(),
            first=self._first,
            closed=self._sessions.discard,
            pause=self._pause,
        )
        self._sessions.add(session)
        return session

    async def listing(self) -> Sequence[object]:
        """The tools as the server sends them now: over the shared connection while it is open, else over one for this.

        Raises `ListingFailed`.
        """
        connection = None if self._link is None else self._link.connection
        try:
            if connection is not None:
                return await connection.tools()
            async with self._connect(self._server.transport, _not_heard) as own:
                return await own.tools()
        except (ConnectionFailed, ServerRefused, BadAnswer) as error:
            raise ListingFailed(str(error)) from error

    async def aclose(self) -> None:
        """List nothing, end every session's server now and the others when their calls have ended."""
        self._closed = True
        self._leave()
        self.live.publish(EMPTY_CATALOG)
        await asyncio.gather(*(session.aclose() for session in self._sessions))
        await self._endings.wait()

    def _open(self) -> None:
        server = self._server
        if server.enabled:
            self._link = Link(server, self._connect, self._on_change, begin=self._begun)
            self._shared = Reach(self._link)
            self._lone = Reach(LoneLine(server, self._connect, self._endings))

    async def _begun(self, connection: ServerConnection) -> None:
        """A server that has just been started may be another than the one that was listed."""
        self._on_change()

    def _leave(self) -> None:
        reaches = [reach for reach in (self._shared, self._lone) if reach is not None]
        self._link = self._shared = self._lone = None
        for reach in reaches:
            reach.off()
            self._endings.begin(reach.retire(self._planner.drain_s))

    def _publish(self, before: Catalog) -> None:
        if self._shared is None:
            self.live.publish(EMPTY_CATALOG)
        else:
            self.live.publish(self._planner.catalog(self._found, self._shared, before))
        known = self._known()
        for session in self._sessions:
            session.follow(known)

    def _known(self) -> Known:
        return Known(server=self._server, planner=self._planner, tools=self.live, accepted=self._accepted())

    def _accepted(self) -> Mapping[str, str] | None:
        if not self._server.pin:
            return None
        return {tool.name: tool.definition.ref.digest for tool in self._found if not tool.quarantined}

    def _over_lone_line(self, catalog: Catalog) -> Catalog:
        return EMPTY_CATALOG if self._lone is None else over(catalog, self._lone)


def _not_heard() -> None:
    """A listing hears of no changes."""
