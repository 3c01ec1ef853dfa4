"""The tools of one MCP server as executors: shared, for each session, and for callers without a session.

DiscoveryRecord ─▶ show ─▶ plans ─▶ `live` ── PersistentConnection: one for everybody
                                     ├─ `lone` ── PerCallConnection: one for each call
                                     └─ `per_session()` ── SessionTools: one for each session
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.plan import CallCounters
from toolplug.discovery.record import DiscoveryRecord, FoundTool, ListingFailed
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import CallServices
from toolplug.mcp.connection import BadAnswer, Connect, ConnectionFailed, OnChange, ServerConnection, ServerRefused
from toolplug.mcp.connection_strategies import (
    BackgroundCloses,
    PerCallConnection,
    PersistentConnection,
    SwitchedConnection,
)
from toolplug.mcp.listing import Heard, OwnListing, Pause
from toolplug.mcp.plans import Labels, Planner, over
from toolplug.mcp.server_config import Command, Server

# A server's tools for one session, over a connection that nobody else has.
#
# Until that connection is open, what is known of the server is listed; then what the connection itself lists. A server
# may show one session what it does not show another, so that such a list stays in its session. Only the first list of a
# connection, read before any call, is what everybody would get, and may be handed on.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """What every session of a server starts from, as it is now.

    `tools` are the plans of what is known, `accepted` the digests of pinned definitions by name; None: not pinned.
    """

    server: Server
    planner: Planner
    tools: LiveCatalog
    accepted: Mapping[str, str] | None


class SessionTools(MergedExecutor):
    """A tool executor that starts its server at its first call. `aclose` ends both, once."""

    def __init__(
        self,
        unknown: CallCounters,
        connect: Connect,
        endings: BackgroundCloses,
        known: Known,
        *,
        first: Heard,
        closed: Callable[[SessionTools], None],
        pause: Pause = asyncio.sleep,
    ) -> None:
        super().__init__(unknown)
        self._connect = connect
        self._endings = endings
        self._first = first
        self._closed = closed
        self._pause = pause
        self._live = LiveCatalog(unknown)
        self._is_closed = False
        self._known = known
        self._reach: SwitchedConnection | None = None
        self._own: OwnListing | None = None
        self._open()

    def follow(self, known: Known) -> None:
        """Go by this from now on: the connection stays where it reaches the same server."""
        before, self._known = self._known, known
        if self._is_closed:
            return
        if not known.server.enabled or known.server.transport != before.server.transport:
            self._leave()
        if self._reach is None:
            self._open()
        else:
            self._show(anew=known.planner is not before.planner)

    async def aclose(self) -> None:
        """Take no more calls, list nothing, and end the server; calls that run are answered as if it were down."""
        if self._is_closed:
            return
        self._is_closed = True
        self._closed(self)
        self.join()
        if self._own is not None and self._reach is not None:
            self._own.stop()
            await self._reach.end()
            await self._own.aclose()

    def _open(self) -> None:
        """Be ready to start the server, where it is one that may be started."""
        server = self._known.server
        if not server.enabled:
            self.join()
            return
        own = self._own = OwnListing(server.name.id, first=self._first, changed=self._show, pause=self._pause)
        link = PersistentConnection(server, self._connect, own.due, begin=own.begin)
        reach = self._reach = SwitchedConnection(link)
        self.join(self._known.tools.view(lambda catalog: over(catalog, reach)))

    def _leave(self) -> None:
        """Let what runs end in the background."""
        reach, own = self._reach, self._own
        self._reach = self._own = None
        self._live.publish(EMPTY_CATALOG)
        if own is not None:
            own.stop()
            self._endings.begin(own.aclose())
        if reach is not None:
            reach.off()
            self._endings.begin(reach.retire(self._known.planner.drain_s))

    def _show(self, *, anew: bool = False) -> None:
        """List what the connection lists, once it has; `anew`: under new plans."""
        reach, own = self._reach, self._own
        if reach is None or own is None or own.tools is None or self._is_closed:
            return
        found = [self._checked(tool) for tool in own.tools]
        before = EMPTY_CATALOG if anew else self._live.catalog
        self._live.publish(self._known.planner.catalog(found, reach, before))
        self.join(self._live)

    def _checked(self, tool: FoundTool) -> FoundTool:
        """In quarantine where its definition is not the accepted one of a pinned server."""
        accepted = self._known.accepted
        quarantined = accepted is not None and accepted.get(tool.name) != tool.definition.ref.digest
        return tool if tool.quarantined == quarantined else replace(tool, quarantined=quarantined)


class ServerTools:
    """Lists what it was shown, and starts the server when a tool is called.

    `on_change` hears that the shared connection lists something else, or has been opened. `first` is told what the
    connection of a session lists before its first call, which is what a listing of its own would find.
    """

    def __init__(
        self,
        server: Server,
        services: CallServices,
        connect: Connect,
        *,
        on_change: OnChange,
        first: Heard,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._server = server
        self._services = services
        self._connect = connect
        self._on_change = on_change
        self._first = first
        self._pause = pause
        self._labels = Labels(services.accounting, server.name)
        self._planner = Planner(server, services, self._labels)
        self._found: tuple[FoundTool, ...] = ()
        self._listed_once = False
        self._announces: bool | None = None
        self._link: PersistentConnection | None = None
        self._shared: SwitchedConnection | None = None
        self._lone: SwitchedConnection | None = None
        self._sessions: set[SessionTools] = set()
        self._endings = BackgroundCloses()
        self._closed = False
        self.live: LiveCatalog = LiveCatalog(services.unknown)
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
        self._planner = Planner(server, self._services, self._labels)
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
            self._services.unknown,
            self._connect,
            self._endings,
            self._known(),
            first=self._first,
            closed=self._sessions.discard,
            pause=self._pause,
        )
        self._sessions.add(session)
        return session

    async def listing(self, fresh: bool = False) -> Sequence[object]:
        """The tools as the server sends them now: over the shared connection while it is open, else over one for this.

        A `fresh` listing has a connection of its own, so that a command is started again. Where the process that runs
        was another version of it, a new one takes the calls that come. Raises `ListingFailed`.
        """
        connection = None if self._link is None else self._link.connection
        try:
            if connection is not None and not fresh:
                return await self._read(connection)
            async with self._connect(self._server.transport, _not_heard) as own:
                tools = await self._read(own)
            if connection is not None and isinstance(self._server.transport, Command):
                await self._replace_unless_current(connection, tools)
            return tools
        except (ConnectionFailed, ServerRefused, BadAnswer) as error:
            raise ListingFailed(str(error)) from error

    def announces(self) -> bool | None:
        """Whether the server announces changes of its list; None while that is not known."""
        return self._announces

    async def _read(self, connection: ServerConnection) -> Sequence[object]:
        tools = await connection.tools()
        self._announces = await connection.announces_changes()
        return tools

    async def _replace_unless_current(self, connection: ServerConnection, tools: Sequence[object]) -> None:
        """Leave the connection to a process that lists, or would list, something else than a new one does."""
        try:
            is_current = await connection.tools() == tools
        except (ConnectionFailed, ServerRefused, BadAnswer):
            is_current = False
        if not is_current and self._link is not None and self._link.connection is connection:
            self._leave()
            self._open()
            self._publish(EMPTY_CATALOG)

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
            self._link = PersistentConnection(server, self._connect, self._on_change, begin=self._begun)
            self._shared = SwitchedConnection(self._link)
            self._lone = SwitchedConnection(PerCallConnection(server, self._connect, self._endings))

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
