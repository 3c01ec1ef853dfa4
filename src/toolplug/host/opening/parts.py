"""The parts of an entered host: opened in order, with what each needs, and closed in reverse order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Self

from toolplug.catalog.catalog import Catalog
from toolplug.execution.executor import open_catalog
from toolplug.execution.metrics import HostMetrics
from toolplug.execution.plans import CallServices
from toolplug.host.admin.reload import wanted_providers
from toolplug.host.artifacts import Artifacts
from toolplug.host.file.configuration import Configuration, CurrentConfiguration
from toolplug.host.file.tool_servers import ServerServices, ToolServers, open_servers
from toolplug.host.keys import DecisionKey
from toolplug.host.opening.coded import CodedParts, Serves
from toolplug.host.opening.part_services import ToolsForParts, end_session, part_services
from toolplug.host.opening.provider_services import (
    always_listed,
    call_services,
    offer_services,
    open_host_key,
    registry_services,
    scopes_by_key,
)
from toolplug.host.opening.records import HostRecords, open_records
from toolplug.host.operations import Operations
from toolplug.host.quotas.quota_use import QuotaUse, open_quota_use
from toolplug.host.running_parts import RunningParts
from toolplug.host.store_records import hash_key, host_id
from toolplug.host.tool_infos import CallableTools, ToolInfos
from toolplug.host.toolsets.service import McpRegistration, ToolsetService
from toolplug.host.views import Views
from toolplug.part_protocols.approvals import PartApprovals
from toolplug.providers.registry import FunctionRegistry
from toolplug.toolsets.saved.equipped import EquippedToolsets
from toolplug.toolsets.saved.saved_toolset import Caller
from toolplug.toolsets.saved.service import SavedToolsets


@dataclass(slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of one entered host; `life` closes them all."""

    current: CurrentConfiguration
    services: CallServices
    registry: FunctionRegistry
    metrics: HostMetrics
    operations: Operations
    records: HostRecords
    views: Views
    toolsets: ToolsetService
    servers: ToolServers
    infos: ToolInfos
    equipment: EquippedToolsets
    saved: SavedToolsets
    running: RunningParts
    quotas: QuotaUse
    read_keys_again: Callable[[], Awaitable[None]]
    life: AsyncExitStack
    opened_key: DecisionKey | None = None

    @classmethod
    async def open(cls, configuration: Configuration, coded: CodedParts, *, serves: Serves) -> Self:
        """Open every part, or none. Raises `ConfigError` and `StoreError`.

        Parts that need later ones get lambdas, which are called once all are open.
        """
        async with AsyncExitStack() as life:
            current = CurrentConfiguration(configuration)
            records = await life.enter_async_context(open_records(current, serving=serves.sessions))
            store, requests, metrics = records.store, records.requests, HostMetrics()
            key = await open_host_key(current, store)
            approvals = PartApprovals()
            # A result that was too long is kept for as long as sessions live now (docs/reference/statuses.md).
            scope_of = scopes_by_key(key)
            artifacts = Artifacts(store, lambda: current().results_ttl_s, scope_of)
            services = call_services(records, approvals, artifacts, current, serves.on_call, lambda: tools, scope_of)
            equipment = EquippedToolsets(services.unknown, always_listed(current))
            saved = SavedToolsets(store, equipment, lambda caller: parts.unchosen(caller), requests)  # noqa: PLW0108  later
            opened: list[RunningParts] = []  # none while providers start
            callable_tools = CallableTools(
                lambda: current().settings, lambda principal, agent: parts.infos.page(principal, agent, None)
            )
            offered = offer_services((saved, callable_tools), opened)
            own = registry_services(current, store, services, artifacts, offered, coded.plugins, key.sealer)
            registry = await life.enter_async_context(FunctionRegistry(metrics=metrics.for_collectors(), services=own))
            await registry.apply(wanted_providers(configuration, {}), configuration.plugin_paths())
            extensions = coded.plugins.mcp_extensions
            needed = ServerServices(store, services, requests, current, coded.servers, serves.servers, extensions)
            servers = await life.enter_async_context(open_servers(configuration.parts, needed))
            host = host_id(await hash_key(store))
            toolsets = ToolsetService(current(), registry, servers, store, services, *coded[:2], requests, host)
            await life.enter_async_context(toolsets)
            views = Views(registry, toolsets.tools, own.tail, equipment, lambda caller: running.tools.of(caller))  # noqa: PLW0108  later
            await life.enter_async_context(saved)
            namespace = configuration.settings.metrics.namespace
            waiting = lambda: approvals.current.count_waiting()  # noqa: E731, PLW0108  they change
            operations = Operations(records.measured, services.accounting, waiting, namespace)
            metrics.register(operations)
            tools = ToolsForParts(registry, toolsets, views, lambda: running.sessions)
            over = partial(end_session, views, toolsets, saved, lambda: running)
            given = part_services(records, current, services, metrics, tools, over, coded.plugins, key.sealer)
            running = RunningParts(given, configuration, approvals)
            opened.append(running)
            await life.enter_async_context(running)
            for collector in servers.collectors(namespace):
                metrics.register(collector)
            quotas = await life.enter_async_context(open_quota_use(configuration.settings, store, records.processes))
            parts = cls(
                current=current,
                services=services,
                registry=registry,
                metrics=metrics,
                operations=operations,
                records=records,
                views=views,
                toolsets=toolsets,
                servers=servers,
                infos=_open_infos(registry, toolsets, servers, equipment, current, running),
                equipment=equipment,
                saved=saved,
                running=running,
                quotas=quotas,
                read_keys_again=key.read_again,
                life=life.pop_all(),
            )
        return parts

    async def drain(self) -> None:
        """Wait for calls that run, those that no request waits for too, each for its time to drain.

        All is open yet: what waits for them in the background goes on with their results, and keeps them.
        """
        self.running.stop()  # nobody answers what waits for an application now
        await self.services.accounting.drain_all()
        await self.running.finish()

    @property
    def configuration(self) -> Configuration:
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
        await self.read_keys_again()
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
