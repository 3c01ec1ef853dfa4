"""The toolsets and allowlists of a running host: of the file, of the host's code, and set over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, cast

from toolplug.catalog.call import Principal
from toolplug.catalog.definition import Offer, Offered
from toolplug.catalog.offering import EMPTY_OFFERING, Offering
from toolplug.cluster.followed import FollowedRecords
from toolplug.cluster.processes import ProcessRequests
from toolplug.errors import ApiError, ConfigError, InvalidDefinition, Problem
from toolplug.execution.accounting import audit, audit_block
from toolplug.execution.plans import CallServices
from toolplug.execution.resolved_limits import NO_LIMITS, LimitLevel
from toolplug.host.file.configuration import Configuration, document_of
from toolplug.host.file.part_sections import built_in
from toolplug.host.file.settings import MCP, PROVIDER, Scope, ToolsetSettings, split_source
from toolplug.host.file.tool_servers import SECTION, ConfiguredServer, ToolServers, server_kind
from toolplug.host.file.toolset_entries import is_agent_id
from toolplug.host.store_records import TenantRecords
from toolplug.host.toolsets.records import (
    ALLOWLISTS,
    BINDINGS,
    AllowlistRecord,
    Binding,
    BindingRecord,
    check_agent,
    check_source,
    check_toolsets,
    no_such,
)
from toolplug.host.toolsets.sources import ToolsetSources
from toolplug.providers.offering.definitions import ToolsetLink
from toolplug.providers.registry import FunctionRegistry
from toolplug.stores.store import Store
from toolplug.toolsets.agent_tools import AgentTools
from toolplug.toolsets.registered import Allowlist, Toolsets
from toolplug.toolsets.toolset import FROM_CODE, Made, PerSession, SharedSource, Toolset
from toolplug.toolsets.toolset import KIND as TOOLSET

_LOG = logging.getLogger("toolplug.host")

NOBODY = Allowlist((), "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRegistration:
    """A toolset of an MCP server that the host's code registered.

    `server` is the server that the code describes, None for one of the configuration; `source` is `mcp:` and its id.
    `agents` may use the toolset in addition to those of the configuration. `offered` is as in `Toolset`.
    """

    id: str
    prefix: str
    source: str
    scope: Scope
    agents: tuple[str, ...]
    server: ConfiguredServer | None
    offered: Offered | None = None

    @property
    def placeholder(self) -> Toolset:
        """The toolset until a host is entered; raises `InvalidDefinition` for an invalid id or prefix."""
        return Toolset(id=self.id, prefix=self.prefix, source=PerSession(factory=_not_entered, tools=()))


def coded_mcp(
    name: str,
    prefix: str,
    server: str | Mapping[str, object],
    agents: Iterable[str],
    scope: Scope,
    offer: Offer | None,
    environ: Mapping[str, str],
) -> McpRegistration:
    """Return a registration of a server, given by its id or described like an entry of `mcp_servers`.

    Raises `ConfigError` for an invalid description.
    """
    described = None
    if not isinstance(server, str):
        kind = server_kind(built_in())
        if kind is None:
            problem = Problem(code="no_servers", message="no part of this host runs servers", path=f"{SECTION}.{name}")
            raise ConfigError([problem])
        entries = kind.read(document_of({SECTION: {name: dict(server)}}), None, environ, {})
        if entries.problems:
            raise ConfigError(entries.problems)
        described = entries.servers[name]
        if described.prefix is not None:
            message = "the prefix is an argument of register_mcp_toolset; leave it out of the description"
            raise ConfigError([Problem(code="wrong_value", message=message, path=f"{SECTION}.{name}.prefix")])
    source = f"{MCP}{server if isinstance(server, str) else name}"
    offered = None if offer is None else Offered(offer, FROM_CODE)
    return McpRegistration(
        id=name, prefix=prefix, source=source, scope=scope, agents=tuple(agents), server=described, offered=offered
    )


def _not_entered() -> Made:
    raise RuntimeError("a toolset of an MCP server has no tools before its host is entered")


@dataclass(frozen=True, slots=True)
class UnreadableLists(Container[tuple[str, str]]):
    """The tenants and agents whose stored lists cannot be read; `key_of` gives the key of a list in the store."""

    key_of: Callable[[str, str], str]
    keys: frozenset[str] = frozenset()

    def __contains__(self, owner: object) -> bool:
        tenant, agent = cast("tuple[str, str]", owner)
        return bool(self.keys) and self.key_of(tenant, agent) in self.keys


class ToolsetService:
    """The toolsets and allowlists of one host. What is set over HTTP is stored, for the caller's tenant.

    While entered it follows the records that other processes change.
    """

    def __init__(
        self,
        configuration: Configuration,
        registry: FunctionRegistry,
        servers: ToolServers,
        store: Store,
        services: CallServices,
        coded: Toolsets,
        coded_mcp: Mapping[str, McpRegistration],
        requests: ProcessRequests,
        host_id: str,
    ) -> None:
        """`coded` are the toolsets of the host's code, `coded_mcp` by id those of MCP servers."""
        self._configuration = configuration
        self._registry = registry
        self._servers = servers
        self._coded = coded
        self._coded_mcp = coded_mcp
        self.sources: ToolsetSources = ToolsetSources(services, registry.plugins, host_id)
        self._coded_agents: dict[str, tuple[str, ...]] = {}
        self._lists = TenantRecords(store, ALLOWLISTS, AllowlistRecord)
        self._bindings = TenantRecords(store, BINDINGS, BindingRecord)
        self.tools: AgentTools = AgentTools(services)
        self._changing_bindings, self._changing_lists = asyncio.Lock(), asyncio.Lock()
        self._stored_bindings = FollowedRecords(
            store, BINDINGS, self._bindings.load, self._use, lambda _: self._changing_bindings
        )
        self._stored_lists = FollowedRecords(
            store, ALLOWLISTS, self._load_list, self._use_lists, lambda _: self._changing_lists
        )
        self._unreadable = UnreadableLists(self._lists.key)
        self._requests = requests
        requests.apply(self._stored_bindings)
        requests.apply(self._stored_lists)

    async def __aenter__(self) -> Self:
        """Register the toolsets of the file, of code and of the store. Raises `ApiError` and `StoreError`."""
        self.configure(self._configuration)
        for name, toolset in self._coded.coded.items():
            if name in self._coded_mcp:
                self.register_mcp(self._coded_mcp[name])
            else:
                self.register(toolset)
        # Before the lists, which name them.
        await self._stored_bindings.start()
        await self._stored_lists.start()
        await self.sources.wait_until_listed()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stored_lists.aclose()
        await self._stored_bindings.aclose()
        await self.tools.aclose()
        await self.sources.aclose()

    def prefixes(self, tenant: str) -> frozenset[str]:
        """Return the prefixes of the toolsets that the tenant can see."""
        return self.tools.toolsets.prefixes(tenant)

    def configure(self, configuration: Configuration) -> None:
        """Replace the toolsets and agents of the file by those of a checked configuration."""
        self._configuration = configuration
        entries = configuration.toolsets
        self.sources.configure(self._links(entries.toolsets))
        before = self.tools.toolsets.configured
        servers = self.tools.toolsets.servers
        exposed = [_as_before(servers.get(item.id), item) for item in self._list_exposed()]
        wanted: list[Toolset] = []
        for name, entry in entries.toolsets.items():
            new = self._toolset(None, name, entry.prefix, entry.source, entry.scope, entries.places[name])
            new = replace(new, limits=_limits(configuration, name), offered=_read_offer(configuration, name))
            wanted.append(_as_before(before.get(name), new))
        self.tools.change(
            toolsets=self.tools.toolsets.configured_as(wanted, exposed),
            allowlists=self.tools.allowlists.configured_as(self._configured_lists()),
        )

    def plugins_changed(self) -> None:
        """Open or close the sources of toolsets whose plugins were switched on or off."""
        if self._links(self._configuration.toolsets.toolsets):
            self.configure(self._configuration)

    def _links(self, toolsets: Mapping[str, ToolsetSettings]) -> dict[str, tuple[str, ToolsetLink]]:
        """Return the kind and the link of each toolset whose source is a plugin's, by toolset id."""
        links: dict[str, tuple[str, ToolsetLink]] = {}
        for name, entry in toolsets.items():
            kind, address = split_source(entry.source) or (PROVIDER, "")
            if kind not in (PROVIDER, MCP):
                link = ToolsetLink(toolset=name, address=address, api_key=entry.api_key, host=self.sources.host)
                links[name] = (kind[:-1], link)
        return links

    def _list_exposed(self) -> Iterator[Toolset]:
        """Yield a toolset for each server of the file that has a prefix, in file order."""
        for name, server in self._configuration.servers.servers.items():
            if server.prefix is not None:
                yield self._toolset(None, name, server.prefix, f"{MCP}{name}", "shared", server.origin("prefix"))

    def begin_session(self, principal: Principal, agent: str | None = None) -> None:
        """List the servers again that a new session of this principal may use.

        Without an agent, those are the servers in catalogs without one, and those of the agents that it may act as.
        """
        known = self.tools.toolsets.of(principal.tenant)
        agents = principal.agents if principal.agents is not None else self.tools.allowlists.agents(principal.tenant)
        lists = [self.allowlist(principal.tenant, name).toolsets for name in ([agent] if agent else sorted(agents))]
        ids = {name for toolsets in lists for name in toolsets} | {*self._configuration.named_toolsets.values()}
        for toolset in known.values():
            if toolset.id in ids:
                toolset.used()
        if agent is None and principal.agents is None:
            for server in self.tools.toolsets.servers.values():
                server.used()

    def register(self, toolset: Toolset) -> None:
        """Register a toolset of the host's code. Raises `ApiError` for a prefix that another one has."""
        self.tools.change(toolsets=self.tools.toolsets.with_coded(toolset))

    def register_mcp(self, item: McpRegistration) -> None:
        """Register a toolset of the host's code that has the tools of an MCP server, and allow it for its agents.

        Raises `ApiError` for a taken prefix and an unknown server; then nothing has changed.
        """
        _, server = split_source(item.source) or ("", item.source)
        if item.server is None and server not in self._servers.ids(None):
            raise ApiError("unknown_server", no_such("MCP server", server, self._servers.ids(None)), param="server")
        toolset = self._toolset(None, item.id, item.prefix, item.source, item.scope, FROM_CODE)
        toolset = replace(toolset, offered=item.offered)
        self.tools.change(toolsets=self.tools.toolsets.with_coded(toolset))
        self._coded_agents = {name: agents for name, agents in self._coded_agents.items() if name != item.id}
        self._coded_agents[item.id] = item.agents
        self.tools.change(allowlists=self.tools.allowlists.configured_as(self._configured_lists()))

    def _configured_lists(self) -> Mapping[str, Allowlist]:
        """Return the allowlists of the file, with the toolsets that the host's code adds."""
        lists = dict(self._configuration.toolsets.agents)
        for toolset, agents in self._coded_agents.items():
            for agent in agents:
                before = lists.get(agent, Allowlist((), FROM_CODE))
                if toolset not in before.toolsets:
                    lists[agent] = before._replace(toolsets=(*before.toolsets, toolset))
        return lists

    def allowlist(self, tenant: str, agent: str) -> Allowlist:
        """Return the toolsets of a tenant's agent; none for an agent that is not configured."""
        return self.tools.allowlists.of(tenant, agent) or NOBODY

    async def allow(self, agent: str, toolsets: tuple[str, ...], *, by: Principal, request_id: str) -> Allowlist:
        """Set the toolsets of an agent of the caller's tenant, from the next call on, in every process of the store.

        Raises `ApiError` for an id that the tenant cannot see, and `StoreError`; then nothing has changed, unless the
        error says that another process does not apply the change.
        """
        async with self._changing_lists:
            with audit_block("agent.toolsets", by, request_id, lambda: agent if is_agent_id(agent) else "_unknown"):
                check_agent(agent)
                check_toolsets(toolsets, self.tools.toolsets.of(by.tenant))
                record = AllowlistRecord(tenant=by.tenant, agent=agent, toolsets=list(toolsets), by=by.subject)
                written = await self._lists.save(record, by.tenant, agent)
                self._stored_lists.put(*written, record)
        await self._requests.wait_until_applied(written.key)
        return record.allowlist

    async def bind(self, name: str, binding: Binding, *, by: Principal, request_id: str) -> Toolset:
        """Set the toolset of an id for the caller's tenant, from the next call on, in every process of the store.

        Raises `InvalidDefinition` for an invalid id or prefix, and like `allow`.
        """
        async with self._changing_bindings:
            try:
                keys = [record.key for record in self._registry.records()]
                check_source(binding, keys, self._servers.ids(by.tenant))
                record = BindingRecord(tenant=by.tenant, id=name, by=by.subject, **binding._asdict())
                toolset = self._bound(record)
                # For its error only: a prefix that is taken is refused before anything is stored.
                self.tools.toolsets.with_own(by.tenant, toolset)
                written = await self._bindings.save(record, record.tenant, name)
            except Exception as error:
                target = "_unknown" if isinstance(error, InvalidDefinition) else name
                audit("toolset.bind", "refused", by, target, request_id)
                raise
            # Within the lock, as above for lists: what follows the store cannot come between and apply an older record.
            self._stored_bindings.put(*written, record)
            audit("toolset.bind", "done", by, name, request_id)
        await self._requests.wait_until_applied(written.key)
        return toolset

    async def _load_list(self, value: bytes) -> AllowlistRecord:
        """Return a list, after the stored toolsets that it names are known. Raises `ValueError` and `StoreError`."""
        record = await self._lists.load(value)
        known = self.tools.toolsets.of(record.tenant)
        await self._stored_bindings.fresh(
            [self._bindings.key(record.tenant, name) for name in record.toolsets if name not in known]
        )
        return record

    def _use(self, changed: Mapping[str, BindingRecord | None]) -> None:
        """Apply changed records. A toolset whose prefix is taken by now stays in the store, unused."""
        toolsets = self.tools.toolsets
        for record in changed.values():
            if record is not None:
                toolsets = _with_kept(toolsets, record.tenant, self._bound(record))
        if toolsets is not self.tools.toolsets:
            self.tools.change(toolsets=toolsets)

    def _use_lists(self, changed: Mapping[str, AllowlistRecord | None]) -> None:
        """Apply changed lists. The agent of one that cannot be read is allowed nothing, also what the file allows."""
        allowlists, before = self.tools.allowlists, self._unreadable
        lists = {
            (record.tenant, record.agent): record.allowlist
            for record in changed.values()
            if record is not None and allowlists.own.get((record.tenant, record.agent)) != record.allowlist
        }
        if self._stored_lists.unreadable != before.keys:
            self._unreadable = replace(before, keys=self._stored_lists.unreadable)
            for key in sorted(self._unreadable.keys - before.keys):
                _LOG.error("%s: its agent is allowed no toolsets until they are set again", key)
        if lists or self._unreadable is not before:
            changed_lists = replace(allowlists.with_own(lists), unreadable=self._unreadable)
            self.tools.change(allowlists=changed_lists)

    def _bound(self, record: BindingRecord) -> Toolset:
        origin = f"PUT /api/toolset-bindings/{record.id} by {record.by}"
        toolset = self._toolset(record.tenant, record.id, record.prefix, record.source, record.scope, origin)
        return replace(toolset, offered=None if record.offer is None else Offered(record.offer, origin))

    def _toolset(
        self,
        tenant: str | None,
        name: str,
        prefix: str,
        source: str,
        scope: Scope,
        origin: str,
    ) -> Toolset:
        """Return the toolset of a `source` as in the configuration: `provider:KEY` or `mcp:ID`.

        Raises `InvalidDefinition` for an invalid id or prefix.
        """
        toolset = partial(Toolset, id=name, prefix=prefix, shown=source, origin=origin)
        kind, key = split_source(source) or (PROVIDER, source)
        if kind == MCP:
            used = partial(self._servers.refresh_server, tenant, key)
            return toolset(source=self._servers.source(tenant, key, scope), used=used)
        if kind != PROVIDER:
            return toolset(source=SharedSource(executor=self.sources.executor(name)))
        offering = partial(self._offering_of, key)
        return toolset(source=SharedSource(executor=self._registry.tools_of(key), offering=offering))

    def _offering_of(self, key: str) -> Offering:
        generation = self._registry.running().get(key)
        return EMPTY_OFFERING if generation is None else generation.offering


def _as_before(old: Toolset | None, new: Toolset) -> Toolset:
    """Return the old toolset if nothing about it has changed, so that what sessions have opened of it stays open."""
    return old if old is not None and _comparison_key(old) == _comparison_key(new) else new


def _comparison_key(toolset: Toolset) -> tuple[object, ...]:
    held = toolset.limits
    # The origins too: a reload after lines were inserted must show the new ones.
    limits = held and (held.limits, [held.origin(name) for name in sorted(held.limits.model_fields_set)])
    return (toolset.id, toolset.prefix, toolset.source, toolset.shown, toolset.origin, limits, toolset.offered)


def _limits(configuration: Configuration, name: str) -> LimitLevel | None:
    limits = configuration.toolsets.toolsets[name].limits
    if limits == NO_LIMITS:
        return None
    return LimitLevel((TOOLSET, name), limits, partial(configuration.origin, "toolsets", name, "limits"))


def _read_offer(configuration: Configuration, name: str) -> Offered | None:
    how = configuration.toolsets.toolsets[name].offer
    return None if how is None else Offered(how, configuration.origin("toolsets", name, "offer"))


def _with_kept(toolsets: Toolsets, tenant: str, toolset: Toolset) -> Toolsets:
    """Return the toolsets with a stored one, or without it if its prefix has been taken since."""
    own = toolsets.own.get(tenant, {}).get(toolset.id)
    if own is not None and _as_before(own, toolset) is own:
        return toolsets
    try:
        return toolsets.with_own(tenant, toolset)
    except ApiError as error:
        _LOG.warning("toolset %r of tenant %r is not used: %s", toolset.id, tenant, error)
        return toolsets
