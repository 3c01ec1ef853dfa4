"""The tools of one MCP server as executors: shared, for each session, and for callers without a session.

DiscoveryRecord ─▶ show ─▶ plans ─▶ `live` ── PersistentConnection: one shared by all
                                     ├─ `lone` ── PerCallConnection: one for each call
                                     └─ `per_session()` ── SessionTools: one for each session
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.offering import EMPTY_OFFERING, Follow, Offering
from toolplug.catalog.plan import Gate
from toolplug.errors import ToolError
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import CallServices
from toolplug.parts.mcp.client.connection import (
    BadAnswer,
    Connect,
    ConnectionFailed,
    OnChange,
    ServerConnection,
    ServerRefused,
)
from toolplug.parts.mcp.client.connection_strategies import (
    BackgroundCloses,
    PerCallConnection,
    PersistentConnection,
    SwitchedConnection,
)
from toolplug.parts.mcp.client.offer_plans import FollowedResources, planned_offers
from toolplug.parts.mcp.client.plans import Labels, ServerPlanner, over
from toolplug.parts.mcp.client.server_config import Command, Endpoint, Server
from toolplug.parts.mcp.client.users import ListUpdates, SignInTarget, User, UserConnections, UserLists, sign_in_tool
from toolplug.parts.mcp.discovery.listing import ListReader
from toolplug.parts.mcp.discovery.offers import NO_OFFERS, FoundOffers, RawOffers
from toolplug.parts.mcp.discovery.record import NEVER, DiscoveryRecord, FoundTool, ListingFailed, ServerState, hold_back

SOON_S = 0.3
EVERY_S = 1.0
"""Between two listings of one connection that follow `list_changed`."""

Pause = Callable[[float], Awaitable[None]]
FirstList = Callable[[Sequence[object]], None]
"""Receives what a server listed, as it sent it; never raises."""

_LOG = logging.getLogger("toolplug.mcp")


class OwnListing:
    """The list of one connection: read before its first call, and after `list_changed`, at most once a second.

    `tools` is the last list, None before the first. `changed` is called after each later list, `first` with the first
    list of each connection.
    """

    def __init__(self, server: str, *, first: FirstList, changed: Callable[[], None], pause: Pause) -> None:
        self._server = server
        self._reader = ListReader(server)
        self._first = first
        self._changed = changed
        self._pause = pause
        self._connection: ServerConnection | None = None
        self._one_reading = asyncio.Lock()
        self._due = False
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        self.tools: tuple[FoundTool, ...] | None = None

    async def begin(self, connection: ServerConnection) -> None:
        """Read the list of a new connection; on failure the last known list stays."""
        self._connection = connection
        raw = await self._read(connection)
        if raw is not None:
            self._first(raw)

    def due(self) -> None:
        """Read the list again soon, once for all changes until then."""
        if self._connection is not None and not self._stopped:
            self._due = True
            if self._task is None:
                self._task = asyncio.create_task(self._read_again(), name="toolplug-mcp-relisting")

    def stop(self) -> None:
        """Call neither `changed` nor `first` any longer."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Stop, and wait for a reading in progress."""
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _read_again(self) -> None:
        await self._pause(SOON_S)
        while self._due:
            self._due = False
            connection = self._connection
            if connection is not None and connection.open:
                await self._read(connection)
            await self._pause(EVERY_S)
        self._task = None

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


def acts_as_user(server: Server) -> bool:
    """Return whether callers act as themselves at this server."""
    return isinstance(server.transport, Endpoint) and server.transport.user_auth is not None


class CachedOffering:
    """The offering of one connection, planned again if the record, the configuration or the connection has changed."""

    def __init__(self) -> None:
        self._of: tuple[FoundOffers, ServerPlanner, SwitchedConnection] | None = None
        self._offering = EMPTY_OFFERING

    def __call__(
        self, found: FoundOffers, planner: ServerPlanner, reach: SwitchedConnection, follow: Follow
    ) -> Offering:
        """Return the same object until something changes."""
        known = self._of
        if known is None or known[0] is not found or known[1] is not planner or known[2] is not reach:
            self._of = (found, planner, reach)
            self._offering = planned_offers(found, planner, reach, follow)
        return self._offering


class SessionTools(MergedExecutor):
    """A server's tools for one session, over its own connection, which opens at the first call; `aclose` closes both.

    Before that it lists the known tools of the server, then those of the connection. A server may show different tools
    to different sessions, so such a list stays in its session. Only the first list of a connection, read before any
    call, is the same for all sessions.
    """

    def __init__(self, tools: ServerTools) -> None:
        super().__init__(tools.services.unknown)
        self._tools = tools
        self._server = tools.server
        self._planner = tools.planner
        self._live = LiveCatalog(tools.services.unknown)
        self._is_closed = False
        self._reach: SwitchedConnection | None = None
        self._own: OwnListing | None = None
        self._offered = CachedOffering()
        self._followed = FollowedResources(lambda: None if self._reach is None else self._reach.line)
        self._open()

    def follow(self) -> None:
        """Adopt the server's current configuration and plans; the connection stays if it reaches the same server."""
        before, is_replanned = self._server, self._planner is not self._tools.planner
        self._server, self._planner = self._tools.server, self._tools.planner
        if self._is_closed:
            return
        if not self._server.enabled or self._server.transport != before.transport:
            self._leave()
        if self._reach is None:
            self._open()
        else:
            self._show(anew=is_replanned)

    @property
    def offering(self) -> Offering:
        """The server's prompts and resources, over the connection of the session."""
        reach = self._reach
        if reach is None or self._is_closed:
            return EMPTY_OFFERING
        return self._offered(self._tools.offers, self._planner, reach, self._followed.follow)

    async def aclose(self) -> None:
        """Refuse new calls, list no tools, and end the server; running calls are answered as unavailable."""
        if self._is_closed:
            return
        self._is_closed = True
        self._tools.sessions.discard(self)
        self.join()
        await self._followed.aclose()
        if self._own is not None:
            self._own.stop()
        if self._reach is not None:
            await self._reach.end()
        if self._own is not None:
            await self._own.aclose()

    def _open(self) -> None:
        """Prepare a connection if the server is enabled; the first call opens it."""
        server, tools = self._server, self._tools
        if not server.enabled:
            self.join()
            return
        if acts_as_user(server):
            reach = self._reach = tools.for_users(lambda: None)
            self.join(tools.live.view(lambda catalog: over(catalog, reach)))
            return
        own = self._own = OwnListing(server.name.id, first=tools.first, changed=self._show, pause=tools.pause)
        link = PersistentConnection(server, tools.connect, own.due, begin=own.begin)
        reach = self._reach = SwitchedConnection(link)
        self.join(tools.live.view(lambda catalog: over(catalog, reach)))

    def _leave(self) -> None:
        """Close the connection in the background after its calls have ended."""
        reach, own = self._reach, self._own
        self._reach = self._own = None
        self._live.publish(EMPTY_CATALOG)
        if own is not None:
            own.stop()
            self._tools.endings.begin(own.aclose())
        if reach is not None:
            reach.off()
            self._tools.endings.begin(reach.retire(self._planner.accounting, self._planner.drain_s))

    def _show(self, *, anew: bool = False) -> None:
        """List the tools of the connection, once it has a list; `anew`: with new plans."""
        reach, own = self._reach, self._own
        if reach is None or own is None or own.tools is None or self._is_closed:
            return
        found = [self._check_pin(tool) for tool in own.tools]
        before = EMPTY_CATALOG if anew else self._live.catalog
        self._live.publish(self._planner.catalog(found, reach, before))
        self.join(self._live)

    def _check_pin(self, tool: FoundTool) -> FoundTool:
        """Return the tool, quarantined if its definition differs from the accepted one of a pinned server."""
        accepted = self._tools.accepted
        quarantined = accepted is not None and accepted.get(tool.name) != tool.definition.ref.digest
        return tool if tool.quarantined == quarantined else replace(tool, quarantined=quarantined)


class ServerTools:
    """Lists the tools of a record, and starts the server when one of them is called.

    `on_change` is called when the shared connection has another list, or has been opened. `first` receives the list of
    a session's connection before its first call, which equals that of a discovery. `accepted` are the digests of pinned
    definitions by name, None if the server is not pinned.
    """

    def __init__(
        self,
        server: Server,
        services: CallServices,
        connect: Connect,
        *,
        on_change: OnChange,
        first: FirstList,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self.server: Server = server
        self.services: CallServices = services
        self.connect: Connect = connect
        self.first: FirstList = first
        self.pause: Pause = pause
        self._on_change = on_change
        self._labels = Labels(services.accounting, server.name)
        self.planner: ServerPlanner = ServerPlanner(server, services, self._labels)
        self._record = NEVER
        self.offers: FoundOffers = NO_OFFERS
        self._raw_offers: RawOffers | None = None
        self._offered, self._lone_offered = CachedOffering(), CachedOffering()
        self._followed = FollowedResources(lambda: self._link)
        self.accepted: Mapping[str, str] | None = self._list_accepted()
        self._listed_once = False
        self._refused = False
        self._users: UserLists = UserLists(server.name.id)
        self._updates: ListUpdates = ListUpdates(self._users, lambda: self._shared, self._show_lists, pause)
        self._announces: bool | None = None
        # None where callers act as themselves: the server is then listed over a connection for each listing.
        self._link: PersistentConnection | None = None
        self._shared: SwitchedConnection | None = None
        self._lone: SwitchedConnection | None = None
        self.sessions: set[SessionTools] = set()
        self.endings: BackgroundCloses = BackgroundCloses()
        self._closed = False
        self.live: LiveCatalog = LiveCatalog(services.unknown)
        self.lone: LiveCatalog = self.live.view(
            lambda catalog: EMPTY_CATALOG if self._lone is None else over(catalog, self._lone)
        )
        self._open()

    @property
    def unmatched_rules(self) -> tuple[str, ...]:
        """Return the tools that have a rule but that the server does not have, as far as its tools are known."""
        names = {tool.name for tool in self._record.tools}
        return tuple(name for name in self.server.tools if name not in names) if self._listed_once else ()

    def show(self, record: DiscoveryRecord) -> None:
        """List the tools, and offer the prompts and resources, of this record."""
        if record.offers is not self.offers:
            self.offers = record.offers
            self.services.offering_changed.send()
        self._listed_once = record.status == "success" or bool(record.tools)
        for_each_user = self._lists_for_each_user
        # It stays so while the server is listed again, which ends in the same way without a user.
        self._refused = not self._listed_once and (self._refused or record.status == "failed")
        if record.tools is self._record.tools and for_each_user == self._lists_for_each_user:
            return
        self._record = record
        self._publish(self.live.catalog if for_each_user == self._lists_for_each_user else EMPTY_CATALOG)

    def configure(self, server: Server) -> None:
        """Adopt a new configuration of the same server, and the host's current limits.

        If it reaches the same server, the connection stays and only plans change. Otherwise, or if it is disabled, the
        old connection is closed after its calls, and new calls use a new one.
        """
        before, self.server = self.server, server
        self.planner = ServerPlanner(server, self.services, self._labels)
        if self._closed:
            return
        if not server.enabled or server.transport != before.transport:
            self._leave()
            self._users.forget()
        if self._shared is None:
            self._open()
        self._publish(EMPTY_CATALOG)

    def per_session(self) -> SessionTools:
        """Return an executor with its own connection, which opens at the first call. The caller closes it."""
        session = SessionTools(self)
        self.sessions.add(session)
        return session

    async def listing(self, fresh: bool = False) -> Sequence[object]:
        """Return the server's current tools, over the shared connection if it is open, otherwise over a temporary one.

        A `fresh` listing uses its own connection, so that a command is started again. If the running process has
        another list, a new one takes later calls. Raises `ListingFailed`.
        """
        connection = None if self._link is None else self._link.connection
        try:
            if connection is not None and not fresh:
                return await self._read(connection)
            async with self.connect(self.server.transport, lambda: None) as own:
                tools = await self._read(own)
            if connection is not None and isinstance(self.server.transport, Command):
                await self._replace_unless_current(connection, tools)
            return tools
        except (ConnectionFailed, ServerRefused, BadAnswer) as error:
            raise ListingFailed(str(error)) from error

    @property
    def offering(self) -> Offering:
        """The server's prompts and resources, over the shared connection."""
        if self._shared is None:
            return EMPTY_OFFERING
        return self._offered(self.offers, self.planner, self._shared, self._followed.follow)

    @property
    def lone_offering(self) -> Offering:
        """The server's prompts and resources, over a connection for each request."""
        if self._lone is None:
            return EMPTY_OFFERING
        return self._lone_offered(self.offers, self.planner, self._lone, _not_followed)

    def last_offers(self) -> RawOffers | None:
        """Return what the last listing found besides tools; None before the first one."""
        return self._raw_offers

    def announces(self) -> bool | None:
        """Return whether the server announces changes of its list; None if that is not known."""
        return self._announces

    async def _read(self, connection: ServerConnection) -> Sequence[object]:
        tools = await connection.tools()
        self._announces = await connection.announces_changes()
        self._raw_offers = await connection.offers()
        return tools

    async def _replace_unless_current(self, connection: ServerConnection, tools: Sequence[object]) -> None:
        """Replace the shared connection if its process has, or would have, another list than a new one."""
        try:
            is_current = await connection.tools() == tools
        except (ConnectionFailed, ServerRefused, BadAnswer):
            is_current = False
        if not is_current and self._link is not None and self._link.connection is connection:
            self._leave()
            self._open()
            self._publish(EMPTY_CATALOG)

    async def aclose(self) -> None:
        """List no tools, end the servers of all sessions now, and the others after their calls."""
        self._closed = True
        await self._updates.aclose()
        await self._followed.aclose()
        self._leave()
        self.live.publish(EMPTY_CATALOG)
        await asyncio.gather(*(session.aclose() for session in self.sessions))
        await self.endings.wait()

    def _open(self) -> None:
        server = self.server
        if not server.enabled:
            return
        if acts_as_user(server):
            self._shared, self._lone = self.for_users(self._on_change), self.for_users(self._on_change)
        else:
            self._link = PersistentConnection(server, self.connect, self._on_change, begin=self._on_begin)
            self._shared = SwitchedConnection(self._link)
            self._lone = SwitchedConnection(PerCallConnection(server, self.connect, self.endings))

    def for_users(self, on_change: OnChange) -> SwitchedConnection:
        """Return a way to the server for callers who act as themselves."""

        def tell(user: User | None) -> None:
            on_change()
            if self._lists_for_each_user:
                self._updates.due(user)

        users = UserConnections(self.server, self.connect, self.services.credentials, self.endings, tell)
        return SwitchedConnection(users, callers=users)

    def _show_lists(self) -> None:
        if self._lists_for_each_user:
            self._publish(EMPTY_CATALOG)

    async def _on_begin(self, connection: ServerConnection) -> None:
        """Report a new process as a change, as it may be another version than the listed one."""
        self._on_change()

    def _leave(self) -> None:
        reaches = [reach for reach in (self._shared, self._lone) if reach is not None]
        self._link = self._shared = self._lone = None
        for reach in reaches:
            reach.off()
            self.endings.begin(reach.retire(self.planner.accounting, self.planner.drain_s))

    def _publish(self, before: Catalog) -> None:
        if self._shared is None:
            self.live.publish(EMPTY_CATALOG)
        elif self._lists_for_each_user:
            self.live.publish(self._catalog_of_users(self._shared))
        else:
            self.live.publish(self.planner.catalog(self._list_held(), self._shared, before))
        self.services.offering_changed.send()
        self.accepted = self._list_accepted()
        for session in self.sessions:
            session.follow()

    @property
    def _lists_for_each_user(self) -> bool:
        """Whether the list is each user's own: the operator cannot list the server, and nothing is pinned to a list.

        A caller that brings a credential may be another person at each call, so its list is the operator's.
        """
        auth = self.server.transport.user_auth if isinstance(self.server.transport, Endpoint) else None
        own = auth is not None and not auth.given_name and not self.server.pin
        return own and self._refused and self.server.policy not in ("deny", "disable")

    def _catalog_of_users(self, reach: SwitchedConnection) -> Catalog:
        """Return the tools of all users, each shown to those who have it, and `sign_in` for those without a list."""
        users, origin = self._users, self.server.origin("user_auth")

        def gates(definition: ToolDefinition) -> tuple[Gate, ...]:
            return (users.gate(definition, origin),)

        held = hold_back(DiscoveryRecord(tools=tuple(users.union())), self.server.locked)
        tools = self.planner.catalog(held.tools, reach, gates_of=gates)
        target = SignInTarget(reach, users, self._show_lists)
        own = (*self.planner.own_gates, users.sign_in_gate(origin))
        sign_in = sign_in_tool(self.services, self._labels, self.server.name.id, target, own)
        return Catalog((sign_in, *tools.values()), unavailable=tools.unavailable)

    def _list_accepted(self) -> Mapping[str, str] | None:
        if not self.server.pin and self.server.locked is None:
            return None
        return {tool.name: tool.definition.ref.digest for tool in self._list_held() if not tool.quarantined}

    def _list_held(self) -> Sequence[FoundTool]:
        return hold_back(self._record, self.server.locked).tools


async def _not_followed(uri: str, told: Callable[[], None]) -> Callable[[], None]:
    raise ToolError("its toolset has a connection for each session; follow it in a session")
