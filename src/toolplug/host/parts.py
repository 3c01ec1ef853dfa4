"""Everything that runs under one entered host: opened in order, closed in the reverse one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import NamedTuple, Self

from prometheus_client import CollectorRegistry

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.execution.approvals import Approvals
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.ledger import Ledger
from toolplug.host.catalogs.views import Views
from toolplug.host.file.configuration import Configuration
from toolplug.host.neighbours import Neighbours
from toolplug.host.reload import wanted_providers
from toolplug.host.responses_desk import ResponsesDesk
from toolplug.host.servers.coded import CodedMcp
from toolplug.host.servers.desk import ServerDesk
from toolplug.host.servers.metrics import ServerMetrics
from toolplug.host.servers.sdk import mcp_speaker
from toolplug.host.setup.registry import registry_setup
from toolplug.host.setup.saved_toolsets import Saved, saved_setup
from toolplug.host.setup.servers import server_desk
from toolplug.host.setup.sessions import session_planner
from toolplug.host.tool_infos import ToolInfos
from toolplug.host.toolsets.desk import ToolsetDesk
from toolplug.mcp.serving import Serving
from toolplug.providers.registry import FunctionRegistry
from toolplug.sessions.metrics import SessionMetrics
from toolplug.sessions.queued_calls import QueuedCalls
from toolplug.sessions.service import Sessions
from toolplug.sessions.session import Session
from toolplug.stores.open import open_store
from toolplug.stores.store import Store
from toolplug.toolsets.first_use import FirstUse
from toolplug.toolsets.registered import Toolsets
from toolplug.toolsets.saved.owner import Caller


class Serves(NamedTuple):
    """What a host does by itself: discover MCP `servers`, hold the `sessions` of its store.

    What it does not do is left to the process that does.
    """

    servers: bool
    sessions: bool


@dataclass(slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of one entered host; `life` closes them all. `configuration` is the newest that holds."""

    configuration: Configuration
    registry: FunctionRegistry
    metrics: CollectorRegistry
    store: Store
    views: Views
    toolsets: ToolsetDesk
    servers: ServerDesk
    infos: ToolInfos
    approvals: Approvals
    sessions: Sessions
    queued: QueuedCalls
    saved: Saved
    mcp: Serving
    responses: ResponsesDesk
    life: AsyncExitStack

    @classmethod
    async def open(
        cls, configuration: Configuration, coded: Toolsets, coded_mcp: Sequence[CodedMcp], *, serves: Serves
    ) -> Self:
        """Open what the configuration asks for, or nothing. Raises `ConfigError` and `StoreError`.

        `coded`: the toolsets that the host's own code registered; `coded_mcp` those among them that have the tools of
        MCP servers. Parts that call one another meet in lambdas: each is called when all are there.
        """
        settings = configuration.settings
        async with AsyncExitStack() as life:
            store = await life.enter_async_context(open_store(settings.store, folder=configuration.folder))
            metrics, approvals, ledger = CollectorRegistry(), Approvals(store), Ledger()
            saved = saved_setup(configuration, store, ledger, lambda caller: parts.unchosen(caller))  # noqa: PLW0108  later
            setup = registry_setup(
                configuration,
                store,
                approvals,
                ledger,
                saved.services,
                lambda: parts.configuration.settings.sessions.ttl,
            )
            registry = await life.enter_async_context(FunctionRegistry(metrics=metrics, setup=setup))
            await registry.apply(wanted_providers(configuration, {}))
            servers = await life.enter_async_context(
                server_desk(configuration, registry, store, approvals, coded_mcp, serving=serves.servers)
            )
            toolsets = await life.enter_async_context(_desk(configuration, registry, servers, store, coded, coded_mcp))
            views = Views(registry, toolsets.tools, setup.tail, saved.equipment)
            await life.enter_async_context(saved.toolsets)
            neighbours = Neighbours(
                registry, toolsets.prefixes, lambda of: views.default_tools(of, toolsets.default_toolset)
            )
            planner = session_planner(configuration, setup.around, registry)
            sessions = await life.enter_async_context(
                Sessions(
                    store,
                    planner,
                    neighbours,
                    limits=settings.sessions.limits,
                    over=lambda code: parts.session_over(code),  # noqa: PLW0108  later
                    serving=serves.sessions,
                )
            )
            metrics.register(SessionMetrics(sessions, settings.metrics.namespace))
            metrics.register(ServerMetrics(servers.running, settings.metrics.namespace))
            queued = QueuedCalls(store, lambda who, agent, code: parts.in_session(who, agent, code))  # noqa: PLW0108  later
            life.push_async_callback(queued.aclose)
            mcp = Serving(mcp_speaker, toolsets.tools.end)
            life.callback(mcp.stop)
            responses = ResponsesDesk(store, settings.responses, toolsets.tools.end)
            life.push_async_callback(responses.aclose)
            parts = cls(
                configuration=configuration,
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
                life=life.pop_all(),
            )
        queued.resume(sessions.live)
        return parts

    def configure(self, configuration: Configuration) -> None:
        """Hold everything but the providers to a configuration that was read again."""
        self.configuration = configuration
        self.servers.configure(configuration)
        self.toolsets.configure(configuration)
        self.saved.stays.configure(configuration)
        planner = session_planner(configuration, self.registry.around, self.registry)
        self.sessions.reconfigure(configuration.settings.sessions.limits, planner)
        self.responses.configure(configuration.settings.responses)

    def register_mcp(self, item: CodedMcp) -> None:
        """Register a toolset of an MCP server of the host's code. Raises `ToolsetRefused`."""
        if item.server is not None:
            self.servers.register(item.server)
        self.toolsets.register_mcp(item)

    def session(self, code: str | None, principal: Principal) -> Session | None:
        """The session of this code, None for none. Raises `AccessError`."""
        return None if code is None else self.sessions.known(code, principal.tenant)

    def in_session(self, principal: Principal, agent: str | None, code: str) -> ToolExecutor:
        """The principal's tools, through an agent where there is one, with those of a session. Raises `AccessError`."""
        return self.views.executor_for(principal, agent, self.session(code, principal), None)

    async def unchosen(self, caller: Caller) -> Catalog:
        """What the caller could call if nothing were equipped. Raises `AccessError` and `StoreError`."""
        principal, agent, code, _ = caller
        session = None if code is None else await self.sessions.find(code, principal.tenant)
        return await listed(self.views.unchosen(principal, agent, session))

    def session_over(self, code: str) -> None:
        """Close and forget what was kept for a session."""
        self.toolsets.tools.end(code)
        self.saved.toolsets.end(code)
        self.mcp.announcer.end(code)


async def listed(executor: ToolExecutor) -> Catalog:
    """What an executor lists, once every toolset that lists nothing before it was opened has been opened."""
    return await executor.listed() if isinstance(executor, FirstUse) else executor.catalog


def _desk(
    configuration: Configuration,
    registry: FunctionRegistry,
    servers: ServerDesk,
    store: Store,
    coded: Toolsets,
    coded_mcp: Sequence[CodedMcp],
) -> ToolsetDesk:
    """The toolsets of the configuration and of code; entered, also the store's. Raises `ConfigError`."""
    desk = ToolsetDesk(configuration, registry, servers, store)
    desk.configure(configuration)
    of_servers = {item.id: item for item in coded_mcp}
    for toolset in coded.coded.values():
        if toolset.id in of_servers:
            desk.register_mcp(of_servers[toolset.id])
        else:
            desk.register(toolset)
    return desk
