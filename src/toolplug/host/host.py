"""The host: one configuration, entered, with everything that runs under it joined into executors for its callers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Collection, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self

from prometheus_client import CollectorRegistry

from toolplug.catalog.call import ANONYMOUS, Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import ToolDefinition
from toolplug.errors import ConfigError, Problem, StoreError
from toolplug.execution.accounting import OnCall, audit
from toolplug.execution.approvals import Approvals
from toolplug.execution.executor import ModelTools, ToolExecutor
from toolplug.host.agent_reach import AgentReach, reach_of
from toolplug.host.explain import Explainer, Explanation
from toolplug.host.file.configuration import Configuration, Source, read_configuration
from toolplug.host.file.provider_entries import only_installed
from toolplug.host.file.settings import HostSettings, Scope
from toolplug.host.parts import Parts, Serves, listed
from toolplug.host.quota_use import QuotaUse
from toolplug.host.reload import Reloaded, check_unchangeable, wanted_providers
from toolplug.host.responses import ResponsesService
from toolplug.host.servers.mcp_servers import McpServers
from toolplug.host.tool_infos import CatalogPage
from toolplug.host.toolsets.service import McpRegistration, ToolsetService, coded_mcp
from toolplug.mcp.mcp_sessions import Serving
from toolplug.providers.entry import ProviderRecord, ProviderState
from toolplug.providers.entry_points import Installed, installed
from toolplug.providers.planning import KIND
from toolplug.providers.registry import FunctionRegistry
from toolplug.runtime.running_call import check_event_loop
from toolplug.runtime.threads import in_own_thread
from toolplug.sessions.queued_calls import QueuedCalls
from toolplug.sessions.service import Sessions
from toolplug.sessions.session import Session
from toolplug.stores.store import Store
from toolplug.toolsets.registered import Toolsets
from toolplug.toolsets.saved.service import SavedToolsets
from toolplug.toolsets.toolset import Factory, coded_toolset

_LOG = logging.getLogger("toolplug.host")
_READY_KEPT_S = 60.0

Reader = Callable[[Source, Mapping[str, str], Installed, Mapping[str, str]], Configuration]
"""Reads a configuration, given the prefixes of toolsets of the host's code by id; raises `ConfigError`."""


def open_host(
    config: Source = "providers.yaml",
    *,
    environ: Mapping[str, str] | None = None,
    serving: bool = True,
    sessions: bool = True,
    on_call: OnCall | None = None,
) -> Host:
    """A host for a configuration file, or for a mapping of the same shape. Nothing is read before it is entered.

    `environ` is what `${NAME}` in the configuration means; None: the environment of the process when it is entered.
    `serving` False is for a look beside the process that serves, and `sessions` False for one that serves no sessions:
    those of the store, and their queued calls, are another process's own. `on_call` is called with provider, tool name,
    status and seconds of each tool call that was answered.
    """
    return Host(config, environ, read_configuration, serving=serving, sessions=sessions, on_call=on_call)


class PartDown(NamedTuple):
    """A part of the host without which calls cannot be served. `reason` is for operators: it may name paths."""

    part: str
    reason: str


class Host:
    """Runs the providers of one configuration while it is entered; may be entered again after it was left.

    Entering raises `ConfigError` with every problem at once, and `StoreError` where the store cannot be opened.
    """

    def __init__(
        self,
        config: Source,
        environ: Mapping[str, str] | None,
        read: Reader,
        *,
        serving: bool = True,
        sessions: bool = True,
        on_call: OnCall | None = None,
    ) -> None:
        self._source = config
        self._environ = environ
        self._reader = read
        self._serves = Serves(servers=serving, sessions=serving and sessions, on_call=on_call)
        self._open: Parts | None = None
        self._down: tuple[PartDown, ...] = ()
        self._overrides: Mapping[str, bool] = MappingProxyType({})
        self._coded = Toolsets()
        self._coded_mcp: Mapping[str, McpRegistration] = MappingProxyType({})
        self._changing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        check_event_loop()
        if self._open is not None:
            raise RuntimeError("this host is entered already; open another one for the same file with open_host")
        self._overrides = MappingProxyType({})
        self._open = await Parts.open(self._read(), self._coded, tuple(self._coded_mcp.values()), serves=self._serves)
        self._say_what_runs()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._changing:
            opened, self._open = self._entered(), None
            await opened.life.aclose()

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """The host as the lifespan of a Starlette or FastAPI application: `FastAPI(lifespan=host.lifespan)`."""
        async with self:
            yield

    @property
    def entered(self) -> bool:
        """Does it run."""
        return self._open is not None

    @property
    def settings(self) -> HostSettings:
        """The sections of the configuration but `providers`, as they are now."""
        return self._entered().configuration.settings

    @property
    def registry(self) -> FunctionRegistry:
        """The providers as one executor."""
        return self._entered().registry

    @property
    def metrics(self) -> CollectorRegistry:
        """Everything that `/metrics` shows."""
        return self._entered().metrics

    @property
    def store(self) -> Store:
        """Where the host keeps records."""
        return self._entered().store

    @property
    def approvals(self) -> Approvals:
        """The calls that wait for a person."""
        return self._entered().approvals

    @property
    def sessions(self) -> Sessions:
        """The sessions of applications that lend their tools."""
        return self._entered().sessions

    @property
    def queued(self) -> QueuedCalls:
        """The calls whose callers come back for the result."""
        return self._entered().queued

    @property
    def toolsets(self) -> ToolsetService:
        """The toolsets and the allowlists of agents."""
        return self._entered().toolsets

    @property
    def servers(self) -> McpServers:
        """The MCP servers whose tools toolsets may have."""
        return self._entered().servers

    @property
    def mcp(self) -> Serving:
        """What clients of Model Context Protocol share."""
        return self._entered().mcp

    @property
    def responses(self) -> ResponsesService:
        """What makes responses of a model, and their conversations."""
        return self._entered().responses

    def is_on_request(self, tool: ToolDefinition) -> bool:
        """Is it a tool that the model of a response is offered only where the request names it."""
        wanted = self._entered().configuration.providers.wanted.get(tool.ref.source)
        return tool.ref.kind == KIND and wanted is not None and wanted.entry.on_request

    @property
    def quotas(self) -> QuotaUse:
        """What tenants and keys use of their quotas now."""
        return self._entered().quotas

    @property
    def saved_toolsets(self) -> SavedToolsets:
        """What each owner has chosen among their tools, with notes."""
        return self._entered().saved.toolsets

    def register_toolset(
        self,
        id: str,  # noqa: A002  the contract's own name
        prefix: str,
        source: ToolExecutor | Factory,
        tools: Iterable[ToolDefinition] | None = None,
    ) -> None:
        """Register a toolset in place of any other of its id, at once; it stays registered when the host is left.

        `source`: an executor that everybody shares and nobody here closes, or a factory that runs once for each session
        and whose executor is closed with it; without a session, one for each call. `tools` are those that a factory's
        executor will have: they are listed before it runs. Without them the first call or listing runs it. What the
        configuration's agents name must be registered before the host is entered. Raises `InvalidDefinition` for an
        illegal id or prefix, and `ApiError` for a prefix that another toolset has.
        """
        toolset = coded_toolset(id, prefix, source, tools)
        coded = self._coded.with_coded(toolset)
        if self._open is not None:
            self._open.toolsets.register(toolset)
        self._coded = coded
        self._coded_mcp = MappingProxyType({key: item for key, item in self._coded_mcp.items() if key != id})

    def register_mcp_toolset(
        self,
        id: str,  # noqa: A002  the contract's own name
        prefix: str,
        server: str | Mapping[str, object],
        allow_for: Iterable[str] = (),
        *,
        scope: Scope = "shared",
    ) -> None:
        """Register the tools of an MCP server as a toolset, like `register_toolset` does.

        `server`: the id of one under `mcp_servers`, or what would stand there. `allow_for`: agents that may use the
        toolset, beside what the configuration allows them. `scope` session: each session has a connection of its own.
        Listing shows what discovery has found, and starts nothing. Raises `InvalidDefinition`, `ApiError` and
        `ConfigError`.
        """
        environ = os.environ if self._environ is None else self._environ
        item = coded_mcp(id, prefix, server, allow_for, scope, environ)
        coded = self._coded.with_coded(item.placeholder)
        if self._open is not None:
            self._open.register_mcp(item)
        self._coded = coded
        self._coded_mcp = MappingProxyType({**self._coded_mcp, id: item})

    async def catalog_for(
        self,
        principal: Principal,
        *,
        agent: str | None = None,
        session: str | None = None,
        toolsets: Collection[str] | None = None,
        within: Hashable = None,
    ) -> Catalog:
        """What `executor_for` lists, once every toolset that lists nothing before it was opened has been opened."""
        chosen = self.executor_for(principal, agent=agent, session=session, toolsets=toolsets, within=within)
        return await listed(chosen)

    def executor_for(
        self,
        principal: Principal,
        *,
        agent: str | None = None,
        session: str | None = None,
        toolsets: Collection[str] | None = None,
        within: Hashable = None,
    ) -> ModelTools:
        """The tools of this caller as one executor that follows every change (docs/reference/http.md, *whose catalog*).

        `toolsets`: the ids of those that this one request wants among the agent's; the rest is neither listed nor run.
        None or nothing: all of them. What a session has of its own is in no toolset and stays.
        `within`: the key of a conversation that is no session, such as one of MCP, in which toolsets are opened once.

        Raises `AgentRequired`, `AgentNotAllowed`, and for the session `InvalidSessionCode`, `SessionNotFound` and
        `SessionGone`; one that another process made is found by `sessions.find` first. Without the scope `tools:call`
        every tool is listed and refused.
        """
        opened = self._entered()
        chosen = frozenset(toolsets) if toolsets else None
        return opened.views.executor_for(principal, agent, _session(opened, session, principal), chosen, within)

    def catalog_page(
        self, principal: Principal, *, agent: str | None = None, session: str | None = None
    ) -> CatalogPage:
        """Every tool that there is, for people who configure, also those that nobody can call; asks and starts nothing.

        With an agent, or for a credential of one: what that agent can reach. Raises like `executor_for`.
        """
        opened = self._entered()
        return opened.infos.page(principal, agent, _session(opened, session, principal))

    def reach(self, principal: Principal) -> AgentReach | None:
        """What the agents of this principal can reach; None for one that is limited to no agents."""
        return reach_of(self._entered().toolsets.tools, principal)

    @property
    def wrong_servers(self) -> tuple[Problem, ...]:
        """What is wrong with entries of MCP servers, without which the host goes on."""
        return self._entered().configuration.servers.problems

    def records(self) -> tuple[ProviderRecord, ...]:
        """Every provider: those of the configuration in file order, then those that are only installed, by type."""
        opened = self._entered()
        return (*opened.registry.records(), *only_installed(opened.configuration.providers))

    def explain(
        self, tool: str, principal: Principal, *, agent: str | None = None, session: str | None = None
    ) -> Explanation:
        """Why this principal can call the tool, or cannot: every gate in order, and what decided.

        Raises like `executor_for` for the session. An agent that cannot be had is a gate of the explanation.
        """
        opened = self._entered()
        explainer = Explainer(
            opened.registry, opened.toolsets.tools, opened.servers, opened.saved, opened.configuration
        )
        return explainer.explain(tool, principal, agent, _session(opened, session, principal))

    def stop(self) -> None:
        """End the streams of all who wait for news; calls go on until the host is left."""
        self.sessions.stop()
        self.mcp.stop()

    async def ready(self) -> tuple[PartDown, ...]:
        """The parts without which calls cannot be served now; empty when they can. The log says why, once."""
        down: tuple[PartDown, ...] = ()
        if self._open is None:
            return (PartDown("host", "it has not been started"),)
        try:
            await self._open.store.commit("readyz", b"", ttl_s=_READY_KEPT_S)  # a full disk can still be read
        except StoreError as error:
            down = (PartDown("store", str(error)),)
        for part in down if down != self._down else ():
            _LOG.error("not ready: %s: %s", part.part, part.reason)
        self._down = down
        return down

    async def enable(self, key: str, *, by: Principal, request_id: str = "") -> None:
        """Run the provider of this key until the next start or reload. Raises `NoSuchProvider` and `ConfigError`."""
        await self._switch(key, True, "provider.enable", by, request_id)

    async def disable(self, key: str, *, by: Principal, request_id: str = "") -> None:
        """Stop the provider of this key until the next start or reload; calls that run end. Raises `NoSuchProvider`."""
        await self._switch(key, False, "provider.disable", by, request_id)

    async def reload(self, *, by: Principal, request_id: str = "") -> Reloaded:
        """Read the configuration again and make it so: unchanged providers keep running, the others are swapped.

        Raises `ConfigError` with every problem; then nothing has changed.
        """
        async with self._changing:
            opened = self._entered()
            before = opened.registry.running()
            try:
                configuration = await in_own_thread(self._read)
                check_unchangeable(opened.configuration, configuration)
                await opened.registry.apply(wanted_providers(configuration, {}))
            except ConfigError:
                audit("config.reload", "refused", by, self._shown_source(), request_id)
                raise
            self._overrides = MappingProxyType({})
            opened.configure(configuration)
            _say_wrong_servers(configuration)
            audit("config.reload", "done", by, self._shown_source(), request_id)
            after = opened.registry.running()
            kept = tuple(key for key in after if before.get(key) is after[key])
            started = tuple(key for key in after if key not in kept)
            return Reloaded(started, kept, tuple(key for key in before if key not in after))

    async def _switch(self, key: str, on: bool, event: str, by: Principal, request_id: str) -> None:
        async with self._changing:
            opened = self._entered()
            try:
                overrides = MappingProxyType({**self._overrides, key: on})
                wanted = await in_own_thread(partial(wanted_providers, opened.configuration, overrides))
                await opened.registry.apply(wanted)
            except Exception:
                audit(event, "refused", by, key, request_id)
                raise
            self._overrides = overrides
            audit(event, "done", by, key, request_id)

    def _read(self) -> Configuration:
        environ = os.environ if self._environ is None else self._environ
        coded = {name: toolset.prefix for name, toolset in self._coded.coded.items()}
        return self._reader(self._source, environ, installed(), coded)

    def _entered(self) -> Parts:
        if self._open is None:
            raise RuntimeError(
                "the host is not entered: use `async with host:` or pass host.lifespan to the application"
            )
        return self._open

    def _shown_source(self) -> str:
        return "settings" if isinstance(self._source, Mapping) else os.fspath(self._source)

    def _say_what_runs(self) -> None:
        _say_wrong_servers(self._entered().configuration)
        for record in self.records():
            level = logging.DEBUG if record.state is ProviderState.INSTALLED_NOT_ENABLED else logging.INFO
            _LOG.log(level, "provider %s (%s): %s%s", record.key, record.type, record.state, _because(record))
        for view in self.servers.servers(ANONYMOUS.tenant):
            _LOG.info("MCP server %s: %s", view.id, view.state)


def _say_wrong_servers(configuration: Configuration) -> None:
    for problem in configuration.servers.problems:
        _LOG.error("%s; going on without it", problem)


def _because(record: ProviderRecord) -> str:
    return f" ({record.reason})" if record.reason else ""


def _session(opened: Parts, code: str | None, principal: Principal) -> Session | None:
    """The principal's session of this code, None for none. Raises `AccessError`."""
    return None if code is None else opened.sessions.known(code, principal.tenant)
