"""The running MCP servers of a host: their executors and handles, kept up with discovery, and their metrics."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.plan import CallCounters
from toolplug.discovery.record import DiscoveryRecord, KnownServer, ServerName, Status
from toolplug.discovery.service import Discovery
from toolplug.errors import ConfigError, Problem, StoreError
from toolplug.execution.egress import Egress
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import CallServices
from toolplug.execution.resolved_limits import NO_LIMITS
from toolplug.host.file.configuration import Configuration, document_of
from toolplug.host.file.server_entries import SECTION, ServerEntries
from toolplug.host.file.settings import MCP, Scope
from toolplug.mcp.connection import Connect, ConnectionFailed, OnChange, ServerConnection
from toolplug.mcp.server_config import Server, Transport, config_hash
from toolplug.mcp.server_endpoint import McpServerEndpoint
from toolplug.mcp.server_tools import ServerTools
from toolplug.toolsets.toolset import Made, OnDemand, PerSession, SessionExecutor, SharedSource, Source, Toolset

MISSING = "MCP needs the extra: pip install 'toolplug[mcp]'"

_SDK = "mcp"
_ANSWERING = "toolplug.mcp.sdk.answering"
_CONNECTING = "toolplug.mcp.sdk.client"


def mcp_speaker() -> McpServerEndpoint:
    """What speaks the protocol with clients. Raises `ModuleNotFoundError` without the extra `mcp`."""
    return cast(
        "McpServerEndpoint", _imported(_ANSWERING).SdkSpeaker()
    )  # a module that is imported by name has no types


class Connections:
    """Connects to servers; the SDK is imported when the first connection is made.

    `configured()` gives the configuration that holds now: where requests may go can change while a host runs.
    """

    def __init__(self, configured: Callable[[], Configuration]) -> None:
        self._configured = configured
        self._made: tuple[Egress, Connect] | None = None

    @asynccontextmanager
    async def connect(self, transport: Transport, on_change: OnChange) -> AsyncGenerator[ServerConnection]:
        """Open a connection (`toolplug.mcp.connection.Connect`)."""
        async with (await self._connector())(transport, on_change) as connection:
            yield connection

    async def _connector(self) -> Connect:
        """The SDK's way; the same while `egress` does not change, since it keeps tokens."""
        configuration = self._configured()
        egress = Egress(configuration.settings.egress.allow)
        if self._made is None or self._made[0] != egress:
            try:
                sdk = await asyncio.to_thread(_imported, _CONNECTING)
            except ModuleNotFoundError:
                raise ConnectionFailed(MISSING) from None
            self._made = egress, cast("Connect", sdk.connector(egress, configuration.folder))  # as above: no types
        return self._made[1]


def _imported(name: str) -> ModuleType:
    """A module of ours that uses the SDK, with the SDK as a whole before it.

    Two threads that begin in different parts of it would each wait for the other, and one be given half a module.
    """
    import_module(_SDK)
    return import_module(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRegistration:
    """One registration: `server` is what the code describes itself, None where it names one of the configuration.

    `source` says which, as the configuration would. `agents` may use the toolset beside what the configuration says.
    """

    id: str
    prefix: str
    source: str
    scope: Scope
    agents: tuple[str, ...]
    server: Server | None

    @property
    def placeholder(self) -> Toolset:
        """The toolset while no host is entered; raises `InvalidDefinition` for an illegal id or prefix."""
        return Toolset(id=self.id, prefix=self.prefix, source=PerSession(factory=_not_entered, tools=()))


def coded_mcp(
    name: str,
    prefix: str,
    server: str | Mapping[str, object],
    agents: Iterable[str],
    scope: Scope,
    environ: Mapping[str, str],
) -> McpRegistration:
    """A registration of a server of the configuration by its id, or of one that is described like an entry of it.

    Raises `ConfigError` for a description that is wrong.
    """
    described = None
    if not isinstance(server, str):
        entries = ServerEntries.read(document_of({SECTION: {name: dict(server)}}), None, environ)
        if entries.problems:
            raise ConfigError(entries.problems)
        described = entries.servers[name]
        if described.prefix is not None:
            message = "the prefix is an argument of register_mcp_toolset; leave it out of the description"
            raise ConfigError([Problem(code="wrong_value", message=message, path=f"{SECTION}.{name}.prefix")])
    source = f"{MCP}{server if isinstance(server, str) else name}"
    return McpRegistration(id=name, prefix=prefix, source=source, scope=scope, agents=tuple(agents), server=described)


def _not_entered() -> Made:
    raise RuntimeError("a toolset of an MCP server has no tools before its host is entered")


class Counted(Protocol):
    """Servers as they are counted: `discoveries` that ended by server and outcome."""

    @property
    def names(self) -> Collection[ServerName]: ...
    @property
    def discoveries(self) -> Mapping[tuple[str, str], int]: ...
    def record(self, name: ServerName) -> DiscoveryRecord: ...


class ServerMetrics(Collector):
    """What discovery knows, and how it went. Servers that tenants added are counted together, under no name."""

    def __init__(self, running: Counted, namespace: str) -> None:
        self._running = running
        self._prefix = f"{namespace}_mcp"

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        records = [self._running.record(name) for name in self._running.names]
        servers = GaugeMetricFamily(
            f"{self._prefix}_servers", "MCP servers by the state of discovery.", labels=["status"]
        )
        states = Counter(record.status for record in records)
        for status in get_args(Status):
            servers.add_metric([status], states[status])
        yield servers
        stale = GaugeMetricFamily(f"{self._prefix}_servers_stale", "MCP servers whose tools are the last good ones.")
        stale.add_metric([], sum(record.stale for record in records))
        yield stale
        quarantined = GaugeMetricFamily(f"{self._prefix}_tools_quarantined", "Tools that wait to be accepted.")
        quarantined.add_metric([], sum(tool.quarantined for record in records for tool in record.tools))
        yield quarantined
        ended = CounterMetricFamily(
            f"{self._prefix}_discoveries", "Discoveries that ended, by outcome.", labels=["server", "outcome"]
        )
        for (server, outcome), count in tuple(self._running.discoveries.items()):
            ended.add_metric([server, outcome], count)
        yield ended

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names do not clash with a provider's, so nothing needs to be collected to find out."""
        return iter(())


class ServerHandle:
    """One server's place: a server of the same name that comes later stands in it again."""

    def __init__(self, unknown: CallCounters) -> None:
        self._unknown = unknown
        self._tools: ServerTools | None = None
        self._live = MergedExecutor(unknown)
        self._lone = MergedExecutor(unknown)
        self._sources: dict[Scope, Source] = {
            "shared": SharedSource(executor=self._live),
            "session": OnDemand(lone=self._lone, make=self._made),
        }

    def put(self, tools: ServerTools | None) -> None:
        """Have these tools here from now on, None: none."""
        self._tools = tools
        self._live.join(*(() if tools is None else (tools.live,)))
        self._lone.join(*(() if tools is None else (tools.lone,)))

    def source(self, scope: Scope) -> Source:
        """The source of a toolset; the same object each time."""
        return self._sources[scope]

    def _made(self) -> SessionExecutor:
        return _Nothing(self._unknown) if self._tools is None else self._tools.per_session()


class _Nothing(LiveCatalog):
    """What a session has of a server that was not there when the session began to use it."""

    async def aclose(self) -> None:
        """There is nothing to end."""


ADDED = "_added"
"""In metrics, every server that a tenant has added: their names are not ours."""

_LOG = logging.getLogger("toolplug.host")


class RunningServers:
    """Starts nothing itself: discovery does when it is due, and an executor when one of its tools is called.

    Unless it is `serving`, nothing is discovered but what is asked for.
    """

    def __init__(self, services: CallServices, discovery: Discovery, connect: Connect, *, serving: bool) -> None:
        self._services = services
        self._discovery = discovery
        self._connect = connect
        self._serving = serving
        self._key = b""
        self._servers: dict[ServerName, ServerTools] = {}
        self._places: dict[ServerName, ServerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: dict[ServerName, str | None] = {}
        self._limits = NO_LIMITS
        self._discoveries: Counter[tuple[str, str]] = Counter()

    @property
    def names(self) -> Collection[ServerName]:
        """Every server that there is."""
        return tuple(self._servers)

    @property
    def discoveries(self) -> Mapping[tuple[str, str], int]:
        """How many ended, by server (`_added` for those of tenants) and outcome."""
        return self._discoveries

    def open(self, key: bytes) -> None:
        """Take servers from now on; `key` hides what the hashes of their configurations are made of."""
        self._key = key
        self._discovery.watch(self._found)

    async def aclose(self) -> None:
        """End every server."""
        for name in list(self._servers):
            self._end(name)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def run(self, servers: Iterable[Server]) -> None:
        """Make these the servers, under the host's limits of now: what has not changed stays, what is gone ends."""
        wanted = {server.name: server for server in servers}
        limits = self._services.limits().limits
        limited_anew, self._limits = limits != self._limits, limits
        for name in [name for name in self._servers if name not in wanted]:
            self._end(name)
        for name, server in wanted.items():
            running = self._servers.get(name)
            if running is None:
                self._begin(server)
            elif limited_anew or _compared(running.server) != _compared(server):
                running.configure(server)
                if self._serving:
                    self._know(running)

    def tools(self, name: ServerName) -> ServerTools:
        """The executors of one of them."""
        return self._servers[name]

    def record(self, name: ServerName) -> DiscoveryRecord:
        """What discovery knows of it."""
        return self._discovery.record(name)

    def catalog(self, name: ServerName) -> Catalog:
        """Its tools by their own names, as they are known; none where there is no such server."""
        running = self._servers.get(name)
        return EMPTY_CATALOG if running is None else running.live.catalog

    def source(self, name: ServerName, scope: Scope) -> Source:
        """The source of a toolset of this server, whether it is there or not; the same object each time."""
        return self._place(name).source(scope)

    def due(self, name: ServerName) -> None:
        """Look at it again in the background, soon."""
        self._discovery.due(name)

    async def discovered(self, name: ServerName, wait_s: float) -> DiscoveryRecord:
        """Ask it for its tools now, waiting at most so long."""
        self._know(self._servers[name])
        return await self._discovery.discovered(name, wait_s)

    async def accept(self, name: ServerName, tools: Collection[str] | None) -> None:
        """Accept the changed definitions of these tools, None: of all. Raises `StoreError`."""
        await self._discovery.accept(name, tools)

    async def forget(self, name: ServerName) -> None:
        """Delete what is known of a server that is gone."""
        try:
            await self._discovery.forget(name)
        except StoreError as error:
            _LOG.warning("what is known of the removed MCP server %r stays in the store: %s", name.id, error)

    def _begin(self, server: Server) -> None:
        name = server.name
        tools = self._servers[name] = ServerTools(
            server,
            self._services,
            self._connect,
            on_change=partial(self._discovery.due, name),
            first=partial(self._listed_first, name),
        )
        known = self._discovery.record(name)
        self._told[name] = known.last_discovery
        tools.show(known)
        self._place(name).put(tools)
        if self._serving:
            found_before = self._discovery.record(name).status == "success"
            self._know(tools)
            if found_before:
                self._discovery.due(name)

    def _know(self, tools: ServerTools) -> None:
        server = tools.server
        if server.enabled:
            self._discovery.know(
                KnownServer(
                    name=server.name,
                    config_hash=config_hash(server, self._key),
                    listing=tools.listing,
                    timeout_s=server.discovery_timeout_s,
                    pin=server.pin,
                    rediscover_s=server.rediscover_s,
                    announces=tools.announces,
                )
            )
        else:
            self._in_background(self._discovery.leave(server.name))

    def _end(self, name: ServerName) -> None:
        tools = self._servers.pop(name)
        self._told.pop(name, None)
        self._in_background(self._discovery.leave(name))
        self._place(name).put(None)
        self._in_background(tools.aclose())

    def _place(self, name: ServerName) -> ServerHandle:
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = ServerHandle(self._services.unknown)
        return place

    def _found(self, name: ServerName, record: DiscoveryRecord) -> None:
        running = self._servers.get(name)
        if running is None:
            return
        if record.status in ("success", "failed") and record.last_discovery != self._told.get(name):
            self._told[name] = record.last_discovery
            self._discoveries[name.id if name.tenant is None else ADDED, record.status] += 1
        running.show(record)

    def _listed_first(self, name: ServerName, tools: Sequence[object]) -> None:
        """A connection of some session lists what every fresh one does: as good as a discovery, without another start.

        A change of the configuration that comes in between makes it worthless, which its hash tells.
        """
        running = self._servers.get(name)
        if running is not None:
            self._in_background(self._discovery.keep(name, config_hash(running.server, self._key), tools))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="toolplug-mcp-end")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _compared(server: Server) -> tuple[object, ...]:
    return (
        server.transport,
        server.enabled,
        server.discovery_timeout_s,
        server.rediscover_s,
        server.pin,
        server.policy,
        server.tools,
        server.limits,
        server.origin(),
    )
