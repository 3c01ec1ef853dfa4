"""The part in an entered host: what it imports, and opens, with the first client and the first server."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self, get_args
from weakref import WeakValueDictionary

from toolplug import library_types
from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.offering import EMPTY_OFFERING, Offering
from toolplug.cluster.followed import PAUSE_S
from toolplug.errors import StoreError
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.metrics import UncheckedCollector, counter_family, gauge_family
from toolplug.execution.run import UnknownCalls
from toolplug.host.file.settings import Scope
from toolplug.host.file.tool_servers import (
    ConfiguredServer,
    Discovered,
    HostServer,
    ServerEntries,
    ServerServices,
    Status,
)
from toolplug.part_protocols.host_part import PartServices, RunningPart
from toolplug.parts.mcp.limits import LONGEST_DISCOVERY_S, SERVERS
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.runtime.threads import in_own_thread
from toolplug.stores.store import key_pages
from toolplug.toolsets.toolset import OnDemand, SessionExecutor, SharedSource, Source

_LOG = logging.getLogger("toolplug.host")
_SERVERS = "toolplug.parts.mcp.servers"
_CLIENTS = "toolplug.parts.mcp.serving"


class McpClients(RunningPart[None]):
    """The state that clients of `/mcp` share, from the first one on."""

    def __init__(self, services: PartServices) -> None:
        self._services = services
        self._serving: Any = None
        self._opening = asyncio.Lock()
        self._life = AsyncExitStack()
        self._stopped = False
        self._left = False

    async def serving(self) -> Any:
        """Return the state, a `Serving`, as `toolplug.parts.mcp.serving.mcp_sessions.clients_of` does.

        Raises `RuntimeError` once the host is left.
        """
        async with self._opening:
            if self._serving is None:
                _check_entered(self._left)
                async with AsyncExitStack() as life:
                    serving = await self._open(life)
                    _check_entered(self._left)
                    self._life = life.pop_all()
                self._serving = serving
                if self._stopped:
                    serving.stop()
        return self._serving

    async def _open(self, life: AsyncExitStack) -> Any:
        services, over = self._services, self._services.end_conversation
        module = await in_own_thread(partial(import_module, f"{_CLIENTS}.mcp_sessions"))
        if services.processes.joined:
            peers = await in_own_thread(partial(import_module, f"{_CLIENTS}.peer_sessions"))
            sessions = peers.PeerMcpSessions(services.store, services.processes, over=over)
            await life.enter_async_context(sessions)
        else:
            sessions = module.McpSessions(over=over)
        load = import_module(f"{_CLIENTS}.server_endpoint").mcp_server_endpoint
        serving = module.Serving(load, sessions, services.store)
        life.callback(serving.stop)
        life.callback(services.offering_changed(serving.announcer.look_at_all))
        return serving

    def configure(self, settings: None) -> None:
        """Do nothing: it has no settings."""

    def session_over(self, code: str) -> None:
        """Forget what clients have seen of a session."""
        if self._serving is not None:
            self._serving.announcer.end(code)

    def stop(self) -> None:
        """End the streams of clients that wait for changes, and those that clients open from now on."""
        self._stopped = True
        if self._serving is not None:
            self._serving.stop()

    async def aclose(self) -> None:
        """Forget all clients."""
        self._left = True
        async with self._opening:
            pass
        await self._life.aclose()


def _check_entered(left: bool) -> None:
    """Raise `RuntimeError` if the host has been left: what is loaded then would not be closed."""
    if left:
        raise RuntimeError("the host was left while this part was loaded")


class ServerToolset(Protocol):
    """The tools of one server, as `ServerTools` has them: shared, without a session, and for each session."""

    @property
    def live(self) -> LiveCatalog: ...
    @property
    def lone(self) -> LiveCatalog: ...
    @property
    def offering(self) -> Offering: ...
    @property
    def lone_offering(self) -> Offering: ...

    def per_session(self) -> SessionExecutor:
        """Return the executor of a session, which closes it."""
        ...


class ServerHandle:
    """The sources of a server's toolsets, which stay the same objects while the server comes and goes."""

    def __init__(self, unknown: UnknownCalls) -> None:
        self._unknown = unknown
        self._tools: ServerToolset | None = None
        self._waiting: set[_WaitingSession] = set()
        self._live = MergedExecutor(unknown)
        self._lone = MergedExecutor(unknown)
        self.sources: Mapping[Scope, Source] = {
            "shared": SharedSource(executor=self._live, offering=self._offering),
            "session": OnDemand(lone=self._lone, make=self._session_executor, offering=self._lone_offering),
        }

    def use(self, tools: ServerToolset | None) -> None:
        """List and call these tools from now on; none of a server that does not exist."""
        self._tools = tools
        self._live.join(*(() if tools is None else (tools.live,)))
        self._lone.join(*(() if tools is None else (tools.lone,)))
        if tools is not None:
            while self._waiting:
                self._waiting.pop().use(tools)

    def _offering(self) -> Offering:
        return EMPTY_OFFERING if self._tools is None else self._tools.offering

    def _lone_offering(self) -> Offering:
        return EMPTY_OFFERING if self._tools is None else self._tools.lone_offering

    def _session_executor(self) -> SessionExecutor:
        if self._tools is not None:
            return self._tools.per_session()
        session = _WaitingSession(self._unknown, self._waiting)
        self._waiting.add(session)
        return session


class _WaitingSession(MergedExecutor):
    """The executor of a session that began to use a server before it existed: empty until the server's tools come."""

    def __init__(self, unknown: UnknownCalls, waiting: set[_WaitingSession]) -> None:
        super().__init__(unknown)
        self._waiting = waiting
        self._own: SessionExecutor | None = None

    def use(self, tools: ServerToolset) -> None:
        """List and call these tools, over the session's own connection."""
        self._own = tools.per_session()
        self.join(self._own)

    @property
    def offering(self) -> Offering:
        """The prompts and resources of the session's own connection."""
        return EMPTY_OFFERING if self._own is None else self._own.offering

    async def aclose(self) -> None:
        """Wait no longer, and release what calls have started."""
        self._waiting.discard(self)
        if self._own is not None:
            await self._own.aclose()


class HostServers:
    """The servers of a host, which are loaded when there is a first one: until then, it has none.

    Loaded at the start where the file, the host's code or the store has one, and where processes share the store.
    """

    def __init__(self, services: ServerServices) -> None:
        self._services = services
        self._coded = {server.id: server for server in services.coded}
        # Kept by the toolsets that use one, and by the servers that exist: tenants add and remove servers for ever.
        self._handles: WeakValueDictionary[tuple[str, str | None], ServerHandle] = WeakValueDictionary()
        self.loaded: Any = None
        self._loading = asyncio.Lock()
        self._life = AsyncExitStack()
        self._tasks = BackgroundTasks()
        self._left = False

    async def __aenter__(self) -> Self:
        entries = self._services.configuration().servers
        if self._services.store.shared or entries.ids or self._coded or await self._has_records():
            await self.load()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        await self._tasks.cancel()
        async with self._loading:
            pass
        await self._life.aclose()

    async def _has_records(self) -> bool:
        async for keys in key_pages(self._services.store, SERVERS):
            if keys:
                return True
        return False

    async def load(self) -> Any:
        """Return the servers, a `McpServers`, as `toolplug.parts.mcp.servers.servers_of` does.

        Raises `StoreError`, and `RuntimeError` once the host is left.
        """
        async with self._loading:
            if self.loaded is None:
                _check_entered(self._left)
                module = await in_own_thread(partial(import_module, _SERVERS))
                async with AsyncExitStack() as life:
                    servers = module.McpServers(self._services, self._coded, self.handle)
                    await life.enter_async_context(servers)
                    _check_entered(self._left)
                    self.loaded, self._life = servers, life.pop_all()
        return self.loaded

    async def present(self) -> Any:
        """Return the servers as `load` does, but None where there is none yet, and none on its way."""
        wanted = self._services.configuration().servers.ids or self._coded
        if self.loaded is None and not wanted and not self._loading.locked():
            return None
        return await self.load()

    def _load_soon(self) -> None:
        """Load in the background, as soon as the store can answer."""
        if not self._tasks:
            self._tasks.start(self._keep_loading(), "toolplug-mcp-servers")

    async def _keep_loading(self) -> None:
        failing = False
        while True:
            try:
                await self.load()
            except StoreError as error:
                if not failing:
                    _LOG.warning("the MCP servers come when the store can answer: %s", error)
                failing = True
                await asyncio.sleep(PAUSE_S)
            else:
                return

    def handle(self, name: tuple[str, str | None]) -> ServerHandle:
        """Return what toolsets have of a server, by its id and its tenant."""
        handle = self._handles.get(name)
        if handle is None:
            handle = self._handles[name] = ServerHandle(self._services.calls.unknown)
        return handle

    async def configure(self, entries: ServerEntries) -> None:
        """Replace the servers of the file.

        Raises `StoreError` if there was none before; they are then loaded in the background.
        """
        if self.loaded is not None:
            self.loaded.apply()
        elif entries.ids or self._coded:
            try:
                await self.load()
            except StoreError:
                self._load_soon()
                raise

    def register(self, server: ConfiguredServer) -> None:
        """Register a server of the host's code, in place of any other of its id; the first is loaded soon."""
        self._coded[server.id] = server
        if self.loaded is not None:
            self.loaded.apply()
        else:
            self._load_soon()

    def servers(self, tenant: str) -> Sequence[HostServer]:
        """Return the servers of a tenant: those of the file in its order, then added ones."""
        return () if self.loaded is None else self.loaded.servers(tenant)

    def ids(self, tenant: str | None) -> Collection[str]:
        """Return the ids that toolsets may name, those of invalid entries among them."""
        own = () if self.loaded is None else self.loaded.ids(tenant)
        return {*self._services.configuration().servers.ids, *self._coded, *own}

    def record(self, tenant: str, server: str) -> Discovered | None:
        """Return the discovery record of a tenant's server."""
        return None if self.loaded is None else self.loaded.record(tenant, server)

    async def discover(self, by: Principal, server: str) -> Discovered:
        """List the tools of a caller's server now, and wait for it. Raises `ApiError` and `StoreError`."""
        servers = await self.load()
        view = await servers.discover(server, by=by, wait_s=LONGEST_DISCOVERY_S, request_id="")
        return view.record

    def catalogs_of(self, tenant: str) -> Mapping[str, Catalog]:
        """Return the tools of each server of a tenant, by server id, under the server's own names."""
        if self.loaded is None:
            return {}
        return {name: tools.live.catalog for name, tools in self.loaded.tools(tenant).items()}

    def source(self, tenant: str | None, server: str, scope: Scope) -> Source:
        """Return the source of a toolset of this server, the same object each time; empty while there is no server."""
        name = (server, None) if self.loaded is None else self.loaded.name_of(tenant, server)
        return self.handle(name).sources[scope]

    def refresh_server(self, tenant: str | None, server: str) -> None:
        """List the server's tools again in the background, since a session begins to use them."""
        if self.loaded is not None:
            self.loaded.refresh_server(tenant, server)

    def collectors(self, namespace: str) -> Iterable[UncheckedCollector]:
        """Return the collector of the metrics of discovery."""
        return (ServerMetrics(self._records, self._discoveries, namespace),)

    def _records(self) -> Iterable[Discovered]:
        return () if self.loaded is None else self.loaded.records()

    def _discoveries(self) -> Mapping[tuple[str, str], int]:
        return {} if self.loaded is None else self.loaded.discoveries


class ServerMetrics(UncheckedCollector):
    """Metrics of discovery: servers by state, stale ones, quarantined tools, and discoveries by server and outcome.

    `records` returns the record of every server; `discoveries` those that ended, by server and outcome. Servers that
    tenants added share one name there.
    """

    def __init__(
        self,
        records: Callable[[], Iterable[Discovered]],
        discoveries: Callable[[], Mapping[tuple[str, str], int]],
        namespace: str,
    ) -> None:
        self._records = records
        self._discoveries = discoveries
        self._prefix = f"{namespace}_mcp"

    def collect(self) -> Iterator[library_types.Metric]:
        """Yield the metric families."""
        records, prefix = tuple(self._records()), self._prefix
        states = Counter(record.status for record in records)
        servers = [(status, states[status]) for status in get_args(Status)]
        yield gauge_family(f"{prefix}_servers", "MCP servers by the state of discovery.", ["status"], servers)
        stale = sum(record.stale for record in records)
        yield gauge_family(
            f"{prefix}_servers_stale", "MCP servers whose tools are the last good ones.", [], [((), stale)]
        )
        quarantined = sum(tool.quarantined for record in records for tool in record.tools)
        yield gauge_family(f"{prefix}_tools_quarantined", "Tools that wait to be accepted.", [], [((), quarantined)])
        yield counter_family(
            f"{prefix}_discoveries",
            "Discoveries that ended, by outcome.",
            ["server", "outcome"],
            self._discoveries().items(),
        )
