"""Everything that runs under one entered host: opened in order, closed in reverse, each part with what it needs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, Self, TypeVar

from prometheus_client import CollectorRegistry

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.plan import Tool
from toolplug.discovery.service import Discovery, ServerMetrics
from toolplug.execution.accounting import CallAccounting, OnCall
from toolplug.execution.approvals import Approvals
from toolplug.execution.artifacts import SOURCE, Artifacts, read_result
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.idempotency import Replays
from toolplug.execution.plans import CallServices, Hooks, ToolPolicy
from toolplug.execution.resolved_limits import DEFAULT_DRAIN_S, LimitLevel
from toolplug.host.explain_gates import EquippedGate
from toolplug.host.file.configuration import Configuration
from toolplug.host.quota_use import QuotaUse
from toolplug.host.reload import wanted_providers
from toolplug.host.responses import ResponsesService
from toolplug.host.servers.mcp_servers import McpServers
from toolplug.host.stored_bytes import CountingStore
from toolplug.host.tool_infos import ToolInfos
from toolplug.host.toolsets.service import McpRegistration, ToolsetService
from toolplug.host.views import Views
from toolplug.mcp.mcp_sessions import Serving
from toolplug.mcp.server_endpoint import mcp_server_endpoint
from toolplug.providers.planning import KIND
from toolplug.providers.registry import FunctionRegistry, RegistryServices, TemporaryRoot, stored_sites
from toolplug.providers.site import Services
from toolplug.sessions.plans import Planner
from toolplug.sessions.queued_calls import QueuedCalls
from toolplug.sessions.service import SessionMetrics, Sessions
from toolplug.stores.open import open_store, store_file, store_folder
from toolplug.stores.serving_lock import only_server, warn_of_workers
from toolplug.stores.store import Store
from toolplug.toolsets.first_use import LazyExecutor
from toolplug.toolsets.registered import Toolsets
from toolplug.toolsets.saved.equipped import EquippedToolsets
from toolplug.toolsets.saved.saved_toolset import Caller, ToolsetOwner
from toolplug.toolsets.saved.service import CatalogOf, SavedToolsets

MANAGING = "toolsets"
"""The type of the providers whose tools stay in every catalog: with them another toolset is equipped, or none."""

S = TypeVar("S")


class AlwaysListed:
    """Which tools no equipped toolset leaves out: those that choose toolsets, and what reads the results of any."""

    def __init__(self, configuration: Configuration) -> None:
        self._keys = _managing(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Go by this configuration from now on."""
        self._keys = _managing(configuration)

    def __call__(self, tool: Tool) -> bool:
        ref = tool.definition.ref
        return ref.source == SOURCE or (ref.source in self._keys and ref.kind == KIND)


class Saved(NamedTuple):
    """The saved toolsets of one entered host."""

    stays: AlwaysListed
    equipment: EquippedToolsets
    toolsets: SavedToolsets

    @property
    def services(self) -> Services:
        """What providers may ask for."""
        return _offered({SavedToolsets: self.toolsets})

    def gate(self, owner: ToolsetOwner) -> EquippedGate | None:
        """What the owner has equipped, as a gate; None where that is nothing."""
        toolset = self.equipment.of(owner)
        return None if toolset is None else EquippedGate(toolset, self.stays)


def saved_toolsets(configuration: Configuration, store: Store, services: CallServices, catalog_of: CatalogOf) -> Saved:
    """Saved toolsets that are not entered yet; `catalog_of` is asked by calls and requests only."""
    stays = AlwaysListed(configuration)
    equipment = EquippedToolsets(services.unknown, stays)
    return Saved(stays, equipment, SavedToolsets(store, equipment, catalog_of))


def _offered(services: Mapping[type, object]) -> Services:
    def service(kind: type[S], /) -> S:
        found = services.get(kind)
        if not isinstance(found, kind):
            raise LookupError(f"this host does not offer {kind.__name__}")
        return found

    return service


def _managing(configuration: Configuration) -> frozenset[str]:
    return frozenset(key for key, wanted in configuration.providers.wanted.items() if wanted.entry.type == MANAGING)


class HostReservedNames:
    """The names that are taken in a tenant's catalogs, and the tools of a session that has none of its own."""

    def __init__(self, registry: FunctionRegistry, toolsets: ToolsetService, views: Views) -> None:
        self._registry = registry
        self._toolsets = toolsets
        self._views = views

    def taken(self, tenant: str, name: str) -> str | None:
        """Whose name this is already in the catalogs of the tenant; None: it is free."""
        catalog = self._registry.catalog.visible_to(Principal(tenant=tenant))
        tool = catalog.find(name)
        if tool is not None:
            return f"provider {tool.definition.ref.source!r}"
        prefix, dot, _ = name.partition(".")
        if dot and (prefix in self._toolsets.prefixes(tenant) or prefix in catalog.prefixes):
            return f"the toolset of the prefix {prefix!r}"
        return None

    def default_tools(self, tenant: str) -> ToolExecutor | None:
        """The tools of a session whose plugin has registered nothing."""
        return self._views.default_tools(tenant, self._toolsets.default_toolset)


def session_planner(configuration: Configuration, services: CallServices) -> Planner:
    """Makes the plans of session tools under this configuration."""
    policy = ToolPolicy(configuration.settings.sessions.policy, configuration.origin("sessions", "policy"))
    return Planner(services, policy)


@dataclass(slots=True, eq=False)
class CurrentConfiguration:
    """Gives the configuration that holds now; a reload replaces it."""

    configuration: Configuration

    def __call__(self) -> Configuration:
        return self.configuration


def call_services(
    store: Store,
    approvals: Approvals,
    artifacts: Artifacts,
    current: CurrentConfiguration,
    hooks: Hooks,
    on_call: OnCall | None,
) -> CallServices:
    """Return what every call of the host needs."""

    def limits() -> LimitLevel:
        now = current()
        return LimitLevel((), now.settings.limits, partial(now.origin, "limits"))

    return CallServices(
        accounting=CallAccounting(on_call),
        replay=Replays(store),
        approvals=approvals,
        artifacts=artifacts,
        hooks=hooks,
        limits=limits,
    )


def registry_services(
    configuration: Configuration, store: Store, services: CallServices, artifacts: Artifacts, offered: Services
) -> RegistryServices:
    """Return what the registry of the host needs.

    Providers keep files next to the store's own, or for its life where it has none.
    """
    settings = configuration.settings
    folder = store_folder(settings.store, folder=configuration.folder)
    root = TemporaryRoot() if folder is None else folder.absolute
    return RegistryServices(
        calls=services,
        site_for=stored_sites(lambda: store, root, configuration.folder, offered),
        namespace=settings.metrics.namespace,
        tail=cache(lambda: read_result(artifacts, services)),
        resources=(root,) if isinstance(root, TemporaryRoot) else (),
    )


class Serves(NamedTuple):
    """What a host does by itself: discover MCP `servers`, hold the `sessions` of its store.

    What it does not do is left to the process that does. `on_call` is told of each tool call that was answered.
    """

    servers: bool
    sessions: bool
    on_call: OnCall | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of one entered host; `life` closes them all."""

    current: CurrentConfiguration
    services: CallServices
    registry: FunctionRegistry
    metrics: CollectorRegistry
    store: Store
    views: Views
    toolsets: ToolsetService
    servers: McpServers
    infos: ToolInfos
    approvals: Approvals
    sessions: Sessions
    queued: QueuedCalls
    saved: Saved
    mcp: Serving
    responses: ResponsesService
    quotas: QuotaUse
    life: AsyncExitStack

    @classmethod
    async def open(
        cls, configuration: Configuration, coded: Toolsets, coded_mcp: Sequence[McpRegistration], *, serves: Serves
    ) -> Self:
        """Open what the configuration asks for, or nothing. Raises `ConfigError` and `StoreError`.

        `coded`: the toolsets that the host's own code registered; `coded_mcp` those among them that have the tools of
        MCP servers. Parts that call one another meet in lambdas: each is called when all are there.
        """
        settings = configuration.settings
        async with AsyncExitStack() as life:
            current = CurrentConfiguration(configuration)
            store = await life.enter_async_context(_opened_store(current, alone=serves.sessions))
            metrics, approvals = CollectorRegistry(), Approvals(store)
            # A result that was too long is kept for as long as sessions live now (docs/reference/statuses.md).
            artifacts = Artifacts(store, lambda: current().settings.sessions.ttl)
            services = call_services(store, approvals, artifacts, current, lambda: registry.hooks, serves.on_call)
            saved = saved_toolsets(configuration, store, services, lambda caller: parts.unchosen(caller))  # noqa: PLW0108  later
            own = registry_services(configuration, store, services, artifacts, saved.services)
            registry = await life.enter_async_context(FunctionRegistry(metrics=metrics, services=own))
            await registry.apply(wanted_providers(configuration, {}))
            discovery = await life.enter_async_context(Discovery(store))
            described = [item.server for item in coded_mcp if item.server is not None]
            servers = McpServers(configuration, store, services, discovery, described, serving=serves.servers)
            await life.enter_async_context(servers)
            toolsets = await life.enter_async_context(
                _toolset_service(configuration, services, registry, servers, store, coded, coded_mcp)
            )
            views = Views(registry, toolsets.tools, own.tail, saved.equipment)
            await life.enter_async_context(saved.toolsets)
            neighbours = HostReservedNames(registry, toolsets, views)
            sessions = await life.enter_async_context(
                Sessions(
                    store,
                    session_planner(configuration, services),
                    neighbours,
                    limits=settings.session_limits,
                    begun=toolsets.begin_session,
                    over=lambda code: parts.session_over(code),  # noqa: PLW0108  later
                    serving=serves.sessions,
                )
            )
            metrics.register(SessionMetrics(sessions, settings.metrics.namespace))
            metrics.register(ServerMetrics(servers.records, servers.discoveries, settings.metrics.namespace))
            queued = QueuedCalls(store, lambda who, agent, code: parts.in_session(who, agent, code))  # noqa: PLW0108  later
            life.push_async_callback(queued.aclose)
            mcp = Serving(mcp_server_endpoint, toolsets.tools.end)
            life.callback(mcp.stop)
            responses = ResponsesService(store, settings.responses, toolsets.tools.end)
            life.push_async_callback(responses.aclose)
            parts = cls(
                current=current,
                services=services,
                registry=registry,
                metrics=metrics,
                store=store,
                views=views,
                toolsets=toolsets,
                servers=servers,
                infos=ToolInfos(registry, toolsets.tools, servers),
                approvals=approvals,
                sessions=sessions,
                queued=queued,
                saved=saved,
                mcp=mcp,
                responses=responses,
                quotas=QuotaUse(settings.quotas, settings.http.edge.streams_per_key),
                life=life.pop_all(),
            )
        queued.resume(sessions.live)
        return parts

    @property
    def configuration(self) -> Configuration:
        """The newest that holds."""
        return self.current()

    def configure(self, configuration: Configuration) -> None:
        """Hold everything but the providers to a configuration that was read again."""
        self.current.configuration = configuration
        self.servers.configure(configuration)
        self.toolsets.configure(configuration)
        self.saved.stays.configure(configuration)
        planner = session_planner(configuration, self.services)
        self.sessions.reconfigure(configuration.settings.session_limits, planner)
        self.quotas.configure(configuration.settings.quotas, configuration.settings.http.edge.streams_per_key)
        self.responses.configure(configuration.settings.responses)

    def register_mcp(self, item: McpRegistration) -> None:
        """Register a toolset of an MCP server of the host's code. Raises `ApiError`."""
        if item.server is not None:
            self.servers.register(item.server)
        self.toolsets.register_mcp(item)

    def in_session(self, principal: Principal, agent: str | None, code: str) -> ToolExecutor:
        """The principal's tools, through an agent where there is one, with those of a session. Raises `AccessError`."""
        return self.views.executor_for(principal, agent, self.sessions.known(code, principal.tenant), None)

    async def unchosen(self, caller: Caller) -> Catalog:
        """What the caller could call if nothing were equipped. Raises `AccessError` and `StoreError`."""
        principal, agent, code, _ = caller
        session = None if code is None else await self.sessions.find(code, principal.tenant)
        return await listed(self.views.unchosen(principal, agent, session))

    def session_over(self, code: str) -> None:
        """Close and forget what was kept for a session."""
        self.views.end(code)
        self.toolsets.tools.end(code)
        self.saved.toolsets.end(code)
        self.mcp.announcer.end(code)


def _serving_alone(configuration: Configuration) -> AbstractAsyncContextManager[None]:
    """Be the only process that serves the store; wait for another one as long as its calls may take to end."""
    file = store_file(configuration.settings.store, folder=configuration.folder)
    if file is None:
        warn_of_workers()
        return nullcontext()
    general = configuration.settings.limits.drain
    drains = [item.entry.limits.drain for item in configuration.providers.wanted.values() if item.build is not None]
    default = DEFAULT_DRAIN_S if general is None else general
    return only_server(file, wait_s=max((default if own is None else own for own in drains), default=default))


@asynccontextmanager
async def _opened_store(current: CurrentConfiguration, *, alone: bool) -> AsyncGenerator[Store]:
    """The store, served `alone` by this process; it counts what callers keep where a quota asks for it."""
    settings = current().settings
    async with AsyncExitStack() as life:
        if alone:
            await life.enter_async_context(_serving_alone(current()))
        store = open_store(settings.store, folder=current().folder)
        if settings.quotas.sets("stored_bytes"):
            store = CountingStore(store, lambda: current().settings.quotas)
        yield await life.enter_async_context(store)


async def listed(executor: ToolExecutor) -> Catalog:
    """What an executor lists, once every toolset that lists nothing before it was opened has been opened."""
    return await executor.listed() if isinstance(executor, LazyExecutor) else executor.catalog


def _toolset_service(
    configuration: Configuration,
    services: CallServices,
    registry: FunctionRegistry,
    servers: McpServers,
    store: Store,
    coded: Toolsets,
    coded_mcp: Sequence[McpRegistration],
) -> ToolsetService:
    """The toolsets of the configuration and of code; entered, also the store's. Raises `ConfigError`."""
    toolsets = ToolsetService(configuration, registry, servers, store, services)
    toolsets.configure(configuration)
    of_servers = {item.id: item for item in coded_mcp}
    for toolset in coded.coded.values():
        if toolset.id in of_servers:
            toolsets.register_mcp(of_servers[toolset.id])
        else:
            toolsets.register(toolset)
    return toolsets
