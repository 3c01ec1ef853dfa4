"""The toolsets and allowlists of a running host: from the file, from code, and over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

from toolplug.catalog.call import Principal
from toolplug.errors import ApiError, ConfigError, InvalidDefinition, Problem
from toolplug.execution.accounting import audit
from toolplug.execution.plans import CallServices
from toolplug.execution.resolved_limits import NO_LIMITS, LimitLevel
from toolplug.host.file.configuration import Configuration, document_of
from toolplug.host.file.server_entries import SECTION, ServerEntries
from toolplug.host.file.settings import MCP, PROVIDER, Scope, split_source
from toolplug.host.file.toolset_entries import is_agent_id
from toolplug.host.servers.mcp_servers import McpServers
from toolplug.host.toolsets.records import (
    CHANGES,
    AllowlistRecord,
    Binding,
    BindingRecord,
    ToolsetRecords,
    check_agent,
    check_source,
    check_toolsets,
    no_such,
)
from toolplug.mcp.server_config import Server
from toolplug.providers.registry import FunctionRegistry
from toolplug.stores.change_log import ChangeLog, Following
from toolplug.stores.store import Store
from toolplug.toolsets.agent_tools import AgentTools
from toolplug.toolsets.declared import KIND as TOOLSET
from toolplug.toolsets.registered import Allowlist, Toolsets
from toolplug.toolsets.toolset import FROM_CODE, Made, PerSession, SharedSource, Source, Toolset

_LOG = logging.getLogger("toolplug.host")

NOBODY = Allowlist((), "default")


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


class ToolsetService:
    """Changes the toolsets of one host. What comes over HTTP is a record first, and holds for the caller's tenant.

    While it is entered it follows the records that other processes change, within a quarter of a second.
    """

    def __init__(
        self,
        configuration: Configuration,
        registry: FunctionRegistry,
        servers: McpServers,
        store: Store,
        services: CallServices,
    ) -> None:
        self._configuration = configuration
        self._registry = registry
        self._servers = servers
        self._coded_agents: dict[str, tuple[str, ...]] = {}
        self._records = ToolsetRecords(store)
        self._tools = AgentTools(services)
        self._changing = asyncio.Lock()
        self._log = ChangeLog(store, CHANGES)
        self._following = Following(self._log, self._look_again, self._restore)

    async def __aenter__(self) -> Self:
        await self._following.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._following.aclose()
        await self._tools.aclose()

    @property
    def tools(self) -> AgentTools:
        """The executors over what is registered."""
        return self._tools

    @property
    def default_toolset(self) -> str | None:
        """The id of the toolset for sessions that have nothing of their own."""
        return self._configuration.settings.sessions.default_toolset

    def prefixes(self, tenant: str) -> frozenset[str]:
        """Those of the toolsets that the tenant can see."""
        return self._tools.toolsets.prefixes(tenant)

    def configure(self, configuration: Configuration) -> None:
        """Make the toolsets and agents of this configuration, which has been checked, those of the file."""
        self._configuration = configuration
        entries = configuration.toolsets
        before = self._tools.toolsets.configured
        servers = self._tools.toolsets.servers
        exposed = [_as_before(servers.get(item.id), item) for item in self._exposed()]
        wanted = [
            _as_before(
                before.get(name),
                Toolset(
                    id=name,
                    prefix=entry.prefix,
                    source=self._source(None, entry.source, entry.scope),
                    limits=_limits(configuration, name),
                    used=self._used(None, entry.source),
                    shown=entry.source,
                    origin=entries.places[name],
                ),
            )
            for name, entry in entries.toolsets.items()
        ]
        self._tools.change(
            toolsets=self._tools.toolsets.configured_as(wanted, exposed),
            allowlists=self._tools.allowlists.configured_as(self._configured_lists()),
        )

    def _exposed(self) -> Iterator[Toolset]:
        """The servers of the file that have a prefix, in its order."""
        for name, server in self._configuration.servers.servers.items():
            if server.prefix is not None:
                source = f"{MCP}{name}"
                yield Toolset(
                    id=name,
                    prefix=server.prefix,
                    source=self._source(None, source, "shared"),
                    used=self._used(None, source),
                    shown=source,
                    origin=server.origin("prefix"),
                )

    def begin_session(self, principal: Principal, agent: str | None = None) -> None:
        """Hear that a session of this principal begins: the servers that it may use are looked at again.

        Without an agent, those are the servers in catalogs without one, and those of the agents that it may act as.
        """
        known = self._tools.toolsets.of(principal.tenant)
        agents = principal.agents if principal.agents is not None else self._tools.allowlists.agents(principal.tenant)
        lists = [self.allowlist(principal.tenant, name).toolsets for name in ([agent] if agent else sorted(agents))]
        ids = {name for toolsets in lists for name in toolsets} | {self.default_toolset}
        for toolset in known.values():
            if toolset.id in ids:
                toolset.used()
        if agent is None and principal.agents is None:
            for server in self._tools.toolsets.servers.values():
                server.used()

    def register(self, toolset: Toolset) -> None:
        """Register one of the host's code. Raises `ApiError` for a prefix that another one has."""
        self._tools.change(toolsets=self._tools.toolsets.with_coded(toolset))

    def register_mcp(self, item: McpRegistration) -> None:
        """Register one of the host's code that has the tools of an MCP server, for its agents as well.

        Raises `ApiError`, also for a server that there is not; then nothing has changed.
        """
        _, server = split_source(item.source) or ("", item.source)
        if item.server is None and server not in self._servers.ids(None):
            raise ApiError("unknown_server", no_such("MCP server", server, self._servers.ids(None)), param="server")
        source = self._source(None, item.source, item.scope)
        toolset = replace(item.placeholder, source=source, used=self._used(None, item.source), shown=item.source)
        self._tools.change(toolsets=self._tools.toolsets.with_coded(toolset))
        self._coded_agents = {name: agents for name, agents in self._coded_agents.items() if name != item.id}
        self._coded_agents[item.id] = item.agents
        self._tools.change(allowlists=self._tools.allowlists.configured_as(self._configured_lists()))

    def _configured_lists(self) -> Mapping[str, Allowlist]:
        """The allowlists of the file, with what the host's code adds to them."""
        lists = dict(self._configuration.toolsets.agents)
        for toolset, agents in self._coded_agents.items():
            for agent in agents:
                before = lists.get(agent, Allowlist((), FROM_CODE))
                if toolset not in before.toolsets:
                    lists[agent] = before._replace(toolsets=(*before.toolsets, toolset))
        return lists

    def allowlist(self, tenant: str, agent: str) -> Allowlist:
        """The toolsets of a tenant's agent; none for one that nobody configured."""
        return self._tools.allowlists.of(tenant, agent) or NOBODY

    async def allow(self, agent: str, toolsets: tuple[str, ...], *, by: Principal, request_id: str) -> Allowlist:
        """Make these the toolsets of the agent for this tenant; holds from the next call on.

        Raises `ApiError` for an id that the tenant cannot see, and `StoreError`; then nothing has changed.
        """
        async with self._changing:
            try:
                check_agent(agent)
                check_toolsets(toolsets, self._tools.toolsets.of(by.tenant))
                record = AllowlistRecord(tenant=by.tenant, agent=agent, toolsets=list(toolsets), by=by.subject)
                change = await self._records.keep_allowlist(record)
            except Exception:
                audit("agent.toolsets", "refused", by, agent if is_agent_id(agent) else "_unknown", request_id)
                raise
            self._put([record])
            audit("agent.toolsets", "done", by, agent, request_id)
            await self._log.announce_done(change)
            return record.allowlist

    async def bind(self, name: str, binding: Binding, *, by: Principal, request_id: str) -> Toolset:
        """Make this the toolset of the id for this tenant; holds from the next call on.

        Raises `ApiError`, `InvalidDefinition` for an illegal id or prefix, and `StoreError`; then nothing has
        changed.
        """
        async with self._changing:
            try:
                keys = [record.key for record in self._registry.records()]
                check_source(binding, keys, self._servers.ids(by.tenant))
                record = BindingRecord(
                    tenant=by.tenant,
                    id=name,
                    prefix=binding.prefix,
                    source=binding.source,
                    scope=binding.scope,
                    by=by.subject,
                )
                toolset = self._bound(record)
                self._tools.toolsets.with_own(by.tenant, toolset)
                change = await self._records.keep_binding(record)
            except Exception as error:
                target = "_unknown" if isinstance(error, InvalidDefinition) else name
                audit("toolset.bind", "refused", by, target, request_id)
                raise
            self._put([record])
            audit("toolset.bind", "done", by, name, request_id)
            await self._log.announce_done(change)
            return toolset

    async def _look_again(self, change: bytes) -> None:
        async with self._changing:
            record = await self._records.changed(change)
            self._put([] if record is None else [record])

    async def _restore(self) -> None:
        async with self._changing:
            self._put([*await self._records.bindings(), *await self._records.allowlists()])

    def _put(self, records: Sequence[AllowlistRecord | BindingRecord]) -> None:
        """Make these hold, if they do not yet. A toolset whose prefix is taken by now stays in the store, unused."""
        toolsets, allowlists = self._tools.toolsets, self._tools.allowlists
        lists: dict[tuple[str, str], Allowlist] = {}
        for record in records:
            if isinstance(record, BindingRecord):
                toolsets = _with_kept(toolsets, record.tenant, self._bound(record))
            elif allowlists.own.get((record.tenant, record.agent)) != record.allowlist:
                lists[record.tenant, record.agent] = record.allowlist
        if toolsets is not self._tools.toolsets or lists:
            self._tools.change(toolsets=toolsets, allowlists=allowlists.with_own(lists))

    def _bound(self, record: BindingRecord) -> Toolset:
        source = self._source(record.tenant, record.source, record.scope)
        origin = f"PUT /api/toolset-bindings/{record.id} by {record.by}"
        return Toolset(
            id=record.id,
            prefix=record.prefix,
            source=source,
            used=self._used(record.tenant, record.source),
            shown=record.source,
            origin=origin,
        )

    def _source(self, tenant: str | None, source: str, scope: Scope) -> Source:
        """Where the tools come from that a configuration or a tenant means."""
        kind, key = split_source(source) or (PROVIDER, source)
        if kind == MCP:
            return self._servers.source(tenant, key, scope)
        return SharedSource(executor=self._registry.tools_of(key))

    def _used(self, tenant: str | None, source: str) -> Callable[[], None]:
        """What is to hear that a session begins to use a toolset of this source."""
        kind, key = split_source(source) or (PROVIDER, source)
        return partial(self._servers.used, tenant, key) if kind == MCP else _nobody_hears


def _nobody_hears() -> None:
    """A provider runs, whether it is used or not."""


def _as_before(old: Toolset | None, new: Toolset) -> Toolset:
    """The old one where nothing about it has changed: what sessions have opened of it stays open."""
    return old if old is not None and _compared(old) == _compared(new) else new


def _compared(toolset: Toolset) -> tuple[object, ...]:
    held = toolset.limits
    limits = held and (held.limits, [held.origin(knob) for knob in sorted(held.limits.model_fields_set)])
    return (toolset.id, toolset.prefix, toolset.source, toolset.shown, toolset.origin, limits)


def _limits(configuration: Configuration, name: str) -> LimitLevel | None:
    limits = configuration.toolsets.toolsets[name].limits
    if limits == NO_LIMITS:
        return None
    return LimitLevel((TOOLSET, name), limits, partial(configuration.origin, "toolsets", name, "limits"))


def _with_kept(toolsets: Toolsets, tenant: str, toolset: Toolset) -> Toolsets:
    """With a toolset that the store has; without it where its prefix has been taken meanwhile."""
    own = toolsets.own.get(tenant, {}).get(toolset.id)
    if own is not None and _as_before(own, toolset) is own:
        return toolsets
    try:
        return toolsets.with_own(tenant, toolset)
    except ApiError as error:
        _LOG.warning("toolset %r of tenant %r is not used: %s", toolset.id, tenant, error)
        return toolsets
