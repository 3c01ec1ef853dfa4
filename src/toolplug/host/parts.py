"""The parts of an entered host: opened in order, with what each needs, and closed in reverse order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple, Self, TypeVar

from prometheus_client import CollectorRegistry

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import SEARCH_SOURCE
from toolplug.catalog.plan import Tool
from toolplug.cluster.limits import ClusterLimits
from toolplug.cluster.process_requests import ProcessRequests
from toolplug.cluster.processes import Processes
from toolplug.execution.accounting import CallAccounting, OnCall
from toolplug.execution.executor import LazyExecutor, ToolExecutor
from toolplug.execution.host_approvals import PartApprovals
from toolplug.execution.host_sessions import HostSessions
from toolplug.execution.idempotency import Replays
from toolplug.execution.limits.resolved_limits import DEFAULT_DRAIN_S, LimitLevel
from toolplug.execution.plans import CallServices
from toolplug.host.admin.reload import wanted_providers
from toolplug.host.admin.store_identity import hash_key, host_id
from toolplug.host.artifacts import SOURCE, Artifacts, read_result
from toolplug.host.decision_key import DecisionKey
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.plugin_hooks import hooks_of_plugins
from toolplug.host.file.tool_servers import ConfiguredServer, NoServers, ServerServices, ToolServers, server_kind
from toolplug.host.measured_store import MeasuredStore
from toolplug.host.operations import Operations
from toolplug.host.quotas.quota_peers import QuotaPeers
from toolplug.host.quotas.quota_use import QuotaUse
from toolplug.host.quotas.stored_bytes import CountingStore
from toolplug.host.running_parts import RunningParts
from toolplug.host.tool_infos import ToolInfos
from toolplug.host.toolsets.service import McpRegistration, ToolsetService
from toolplug.host.views import Views
from toolplug.net.egress import Egress
from toolplug.providers.host_part import PartServices
from toolplug.providers.planning import KIND
from toolplug.providers.plugins.registration import PluginManager
from toolplug.providers.registry import FunctionRegistry, RegistryServices
from toolplug.providers.site import Services, TemporaryRoot, stored_sites
from toolplug.sqlite.serving_lock import is_served_shared, serving_lock, warn_of_workers
from toolplug.stores.open import enter_with_retries
from toolplug.stores.store import Store
from toolplug.toolsets.registered import Toolsets
from toolplug.toolsets.saved.equipped import EquippedToolsets, Stays
from toolplug.toolsets.saved.saved_toolset import Caller
from toolplug.toolsets.saved.service import SavedToolsets

MANAGING = "toolsets"
"""The provider type whose tools stay in every catalog, since they equip another toolset or none."""

S = TypeVar("S")


def always_listed(current: Callable[[], Configuration]) -> Stays:
    """Return which tools no equipped toolset leaves out: those that choose toolsets, and the reader of kept results."""

    def stays(tool: Tool) -> bool:
        ref = tool.definition.ref
        wanted = current().providers.wanted.get(ref.source) if ref.kind == KIND else None
        return ref.source == SOURCE or (wanted is not None and wanted.entry.type == MANAGING)

    return stays


def _offer_services(saved: SavedToolsets, opened: Sequence[RunningParts]) -> Services:
    """Return the services that providers may ask for by type: `SavedToolsets`, and the parts once they are `opened`."""

    def service(kind: type[S], /) -> S:
        found = saved if isinstance(saved, kind) else next((parts.find(kind) for parts in opened), None)
        if found is None:
            raise LookupError(f"this host does not offer {kind.__name__}")
        return found

    return service


class ToolsForParts:
    """The `HostTools` of the parts: the names that are taken in a tenant's catalogs, and the tools of callers."""

    def __init__(
        self,
        registry: FunctionRegistry,
        toolsets: ToolsetService,
        views: Views,
        sessions: Callable[[], HostSessions],
    ) -> None:
        self._registry = registry
        self._toolsets = toolsets
        self._views = views
        self._sessions = sessions

    def owner_of(self, tenant: str, name: str) -> str | None:
        """Return the owner of a name in the tenant's catalogs, as text for messages; None for a free name."""
        catalog = self._registry.catalog.visible_to(Principal(tenant=tenant))
        tool = catalog.find(name)
        if tool is not None:
            source = tool.definition.ref.source
            return "this host itself" if source in (SOURCE, SEARCH_SOURCE) else f"provider {source!r}"
        prefix, dot, _ = name.partition(".")
        if dot and (prefix in self._toolsets.prefixes(tenant) or prefix in catalog.prefixes):
            return f"the toolset of the prefix {prefix!r}"
        return None

    def toolset(self, tenant: str, toolset: str) -> ToolExecutor:
        """Return one toolset under its prefix as a tenant sees it."""
        return self._views.toolset(tenant, toolset)

    def executor_for(self, principal: Principal, agent: str | None, session: str) -> ToolExecutor:
        """Return the tools of a principal, an agent of its or None, and a session. Raises `AccessError`."""
        return self._views.executor_for(principal, agent, self._sessions().known_session(session, principal.tenant))


@dataclass(slots=True, eq=False)
class CurrentConfiguration:
    """The present configuration, which a reload replaces."""

    configuration: Configuration

    def __call__(self) -> Configuration:
        return self.configuration

    def origin(self, *path: str) -> str:
        """Return the place of a path as `file:line`; `default` if the file does not have it."""
        return self.configuration.origin(*path)


def call_services(
    store: Store,
    processes: Processes,
    approvals: PartApprovals,
    artifacts: Artifacts,
    current: CurrentConfiguration,
    serves: Serves,
    cluster: ClusterLimits | None,
) -> CallServices:
    """Return what every call of the host needs."""

    def limits() -> LimitLevel:
        now = current()
        return LimitLevel((), now.settings.limits, partial(now.origin, "limits"))

    return CallServices(
        accounting=CallAccounting(serves.on_call, cluster),
        replay=Replays(store, processes),
        approvals=approvals,
        artifacts=artifacts,
        limits=limits,
    )


def registry_services(
    current: CurrentConfiguration,
    store: Store,
    services: CallServices,
    artifacts: Artifacts,
    offered: Services,
    plugins: PluginManager,
) -> RegistryServices:
    """Return what the registry of the host needs.

    Providers keep their files in the folder of `ConfiguredStore.state_folder`; with a store in memory, in a temporary
    folder as long as the host runs.
    """
    configuration = current()
    settings = configuration.settings
    plugins.specify(hooks_of_plugins(configuration.providers))
    folder = configuration.store.state_folder
    root = TemporaryRoot() if folder is None else folder.absolute
    return RegistryServices(
        calls=services,
        site_for=stored_sites(
            lambda: store,
            root,
            configuration.folder,
            offered,
            lambda: Egress(current().settings.egress.allow),
        ),
        namespace=settings.metrics.namespace,
        plugins=plugins,
        tail=cache(lambda: read_result(artifacts, services)),
        resources=(root,) if isinstance(root, TemporaryRoot) else (),
    )


class Serves(NamedTuple):
    """Whether a host discovers MCP `servers`, and whether it holds the `sessions` of its store.

    Another process does what it does not. `on_call` is called for each tool call that was answered.
    """

    servers: bool
    sessions: bool
    on_call: OnCall | None = None


class CodedParts(NamedTuple):
    """What the host's own code gave it: toolsets, by id those of MCP servers, and the manager of its plugins."""

    toolsets: Toolsets
    mcp: Mapping[str, McpRegistration]
    plugins: PluginManager

    @property
    def servers(self) -> Sequence[ConfiguredServer]:
        """The MCP servers that the code describes itself."""
        return [item.server for item in self.mcp.values() if item.server is not None]


@dataclass(slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of one entered host; `life` closes them all."""

    current: CurrentConfiguration
    services: CallServices
    registry: FunctionRegistry
    metrics: CollectorRegistry
    operations: Operations
    store: Store
    processes: Processes
    requests: ProcessRequests
    views: Views
    toolsets: ToolsetService
    servers: ToolServers
    infos: ToolInfos
    equipment: EquippedToolsets
    saved: SavedToolsets
    running: RunningParts
    quotas: QuotaUse
    life: AsyncExitStack
    opened_key: DecisionKey | None = None

    @classmethod
    async def open(cls, configuration: Configuration, coded: CodedParts, *, serves: Serves) -> Self:
        """Open every part, or none. Raises `ConfigError` and `StoreError`.

        Parts that need later ones get lambdas, which are called once all are open.
        """
        async with AsyncExitStack() as life:
            current = CurrentConfiguration(configuration)
            store, measured = await life.enter_async_context(_opened_store(current, alone=serves.sessions))
            processes, cluster = await life.enter_async_context(_processes(store, serving=serves.sessions))
            metrics, requests = CollectorRegistry(), ProcessRequests(store, processes)
            approvals = PartApprovals(lambda: running.approvals)
            # A result that was too long is kept for as long as sessions live now (docs/reference/statuses.md).
            artifacts = Artifacts(store, lambda: current().results_ttl_s)
            services = call_services(store, processes, approvals, artifacts, current, serves, cluster)
            equipment = EquippedToolsets(services.unknown, always_listed(current))
            saved = SavedToolsets(store, equipment, lambda caller: parts.unchosen(caller), requests)  # noqa: PLW0108  later
            opened: list[RunningParts] = []  # none while providers start
            offered = _offer_services(saved, opened)
            own = registry_services(current, store, services, artifacts, offered, coded.plugins)
            registry = await life.enter_async_context(FunctionRegistry(metrics=metrics, services=own))
            await registry.apply(wanted_providers(configuration, {}))
            needed = ServerServices(store, services, requests, current, coded.servers, serves.servers)
            servers = await life.enter_async_context(_open_servers(configuration, needed))
            host = host_id(await hash_key(store))
            toolsets = ToolsetService(current(), registry, servers, store, services, *coded[:2], requests, host)
            await life.enter_async_context(toolsets)
            views = Views(registry, toolsets.tools, own.tail, equipment, lambda caller: running.tools.of(caller))  # noqa: PLW0108  later
            await life.enter_async_context(saved)
            namespace = configuration.settings.metrics.namespace
            operations = Operations(measured, services.accounting, lambda: running.approvals.count_waiting(), namespace)  # noqa: PLW0108  later
            metrics.register(operations)
            given = PartServices(
                store=store,
                processes=processes,
                serving=serves.sessions,
                end_conversation=toolsets.tools.end,
                calls=services,
                tools=ToolsForParts(registry, toolsets, views, lambda: running.sessions),
                metrics=metrics,
                namespace=namespace,
                quotas=lambda: current().settings.quotas,
                origin=current.origin,
                session_begun=toolsets.begin_session,
                session_over=partial(_end_session, views, toolsets, saved, lambda: running),
                plugins=coded.plugins,
                offering_changed=services.offering_changed.listen,
            )
            running = RunningParts(given, configuration)
            opened.append(running)
            await life.enter_async_context(running)
            for collector in servers.collectors(namespace):
                metrics.register(collector)
            parts = cls(
                current=current,
                services=services,
                registry=registry,
                metrics=metrics,
                operations=operations,
                store=store,
                processes=processes,
                requests=requests,
                views=views,
                toolsets=toolsets,
                servers=servers,
                infos=_open_infos(registry, toolsets, servers, equipment, current, running),
                equipment=equipment,
                saved=saved,
                running=running,
                quotas=await _quota_use(life, configuration, store, processes),
                life=life.pop_all(),
            )
        return parts

    @property
    def configuration(self) -> Configuration:
        """The present configuration."""
        return self.current()

    @property
    def decision_key(self) -> DecisionKey:
        """The key that decides on calls without `auth`, opened when first needed."""
        if self.opened_key is None:
            self.opened_key = DecisionKey.open(self.configuration.store.state_folder)
        return self.opened_key

    async def configure(self, configuration: Configuration) -> None:
        """Apply a configuration that was read again to every part but the providers.

        Raises `StoreError` if only its first servers cannot be read from the store yet.
        """
        self.current.configuration = configuration
        self.toolsets.configure(configuration)
        self.quotas.configure(configuration.settings.quotas, configuration.settings.http.edge.streams_per_key)
        await self.running.configure(configuration)
        # Last, since it fails without the store: everything else is applied by then.
        await self.servers.configure(configuration.servers)

    def register_mcp(self, item: McpRegistration) -> None:
        """Register a toolset of the host's code with the tools of an MCP server. Raises `ApiError`."""
        if item.server is not None:
            self.servers.register(item.server)
        self.toolsets.register_mcp(item)

    async def unchosen(self, caller: Caller) -> Catalog:
        """Return the caller's catalog as if nothing were equipped. Raises `AccessError` and `StoreError`."""
        principal, agent, code, _ = caller
        session = None if code is None else await self.running.sessions.find(code, principal.tenant)
        return await open_catalog(self.views.unchosen(principal, agent, session))


def _end_session(
    views: Views, toolsets: ToolsetService, saved: SavedToolsets, running: Callable[[], RunningParts], code: str
) -> None:
    """Close and forget the views and toolsets of a session that has ended, and what parts know of it."""
    views.end(code)
    toolsets.tools.end(code)
    saved.end(code)
    running().session_over(code)


def _open_infos(
    registry: FunctionRegistry,
    toolsets: ToolsetService,
    servers: ToolServers,
    equipment: EquippedToolsets,
    current: CurrentConfiguration,
    running: RunningParts,
) -> ToolInfos:
    """Return what writes the catalog pages."""
    stays = always_listed(current)
    return ToolInfos(registry, toolsets.tools, servers, toolsets.sources, equipment, stays, running.tools.of)


def _longest_drain_s(configuration: Configuration) -> float:
    """Return how long another process that serves the store may still drain."""
    general = configuration.settings.limits.drain
    drains = [item.entry.limits.drain for item in configuration.providers.wanted.values() if item.build is not None]
    default = DEFAULT_DRAIN_S if general is None else general
    return max((default if own is None else own for own in drains), default=default)


@asynccontextmanager
async def _opened_store(current: CurrentConfiguration, *, alone: bool) -> AsyncGenerator[tuple[Store, MeasuredStore]]:
    """Open the store, served by this process `alone` if set, and counting stored bytes if a quota limits them.

    The second store is the measured one, which the first one uses.
    """
    settings, named = current().settings, current().store
    async with AsyncExitStack() as life:
        if not alone and named.file is not None and is_served_shared(named.file):
            # The file does not say so, but `serve --workers` has opened it this way, and a command must open it alike.
            named = replace(named, shared=True)
        opening = named.open()
        if alone and named.file is not None:
            # On a restart the process before may still drain its calls; it holds the lock until then.
            wait_s = _longest_drain_s(current())
            await life.enter_async_context(serving_lock(named.file, shared=opening.shared, wait_s=wait_s))
        store = measured = MeasuredStore(opening)
        if settings.quotas.sets("stored_bytes"):
            store = CountingStore(store, lambda: current().settings.quotas)
        if alone:
            # Only the process that serves waits for a store that is away at the start. A command reports it at once.
            await enter_with_retries(store)
            life.push_async_exit(store)
        else:
            await life.enter_async_context(store)
        if alone and named.in_memory:
            warn_of_workers()
        yield store, measured


@asynccontextmanager
async def _processes(store: Store, *, serving: bool) -> AsyncGenerator[tuple[Processes, ClusterLimits | None]]:
    """Join the processes of the store, with the limits that hold for all of them; None if it is not shared."""
    async with Processes(store, serving=serving) as processes:
        if not processes.joined:
            yield processes, None
            return
        async with ClusterLimits(store, processes) as cluster:
            yield processes, cluster


@asynccontextmanager
async def _open_servers(configuration: Configuration, services: ServerServices) -> AsyncGenerator[ToolServers]:
    """Run the servers whose tools toolsets can have."""
    kind = server_kind(configuration.parts)
    if kind is None:
        yield NoServers(services.calls)
        return
    async with kind.open(services) as servers:
        yield servers


async def open_catalog(executor: ToolExecutor) -> Catalog:
    """Return what an executor lists, after opening every toolset that must be opened before it lists anything."""
    return await executor.open_catalog() if isinstance(executor, LazyExecutor) else executor.catalog


async def _quota_use(
    life: AsyncExitStack, configuration: Configuration, store: Store, processes: Processes
) -> QuotaUse:
    """Return the use of quotas, which follows that of other processes of the store until the end of `life`."""
    settings = configuration.settings
    use = QuotaUse(settings.quotas, settings.http.edge.streams_per_key)
    await life.enter_async_context(QuotaPeers(store, processes, use))
    return use
