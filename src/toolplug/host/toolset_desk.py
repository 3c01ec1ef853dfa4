"""Where toolsets and allowlists of a running host are registered: by the file, by code, and over HTTP."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.config.nearest import name_hint
from toolplug.errors import InvalidDefinition, ToolsetRefused
from toolplug.execution.audit import audit
from toolplug.execution.knobs import NO_LIMITS, Layer
from toolplug.host.configuration import Configuration
from toolplug.host.toolset_entries import AGENT_RULE, is_agent_id
from toolplug.host.toolset_records import AllowlistRecord, BindingRecord, ToolsetRecords
from toolplug.host.toolset_settings import MCP, PROVIDER, Scope
from toolplug.host.toolset_setup import toolsets_around
from toolplug.providers.registry import FunctionRegistry
from toolplug.stores.store import Store
from toolplug.toolsets.agent_tools import AgentTools
from toolplug.toolsets.allowlists import Allowlist
from toolplug.toolsets.declared import KIND as TOOLSET
from toolplug.toolsets.registered import Toolsets
from toolplug.toolsets.toolset import Shared, Toolset

_LOG = logging.getLogger("toolplug.host")

NOBODY = Allowlist((), "default")


class Binding(NamedTuple):
    """A toolset as it is asked for over HTTP; `source` as in the configuration: `provider:KEY`."""

    prefix: str
    source: str
    scope: Scope = "shared"


class ToolsetDesk:
    """Changes the toolsets of one host. What comes over HTTP is a record first, and holds for the caller's tenant."""

    def __init__(self, configuration: Configuration, registry: FunctionRegistry, store: Store) -> None:
        self._configuration = configuration
        self._registry = registry
        self._records = ToolsetRecords(store)
        self._tools = AgentTools(toolsets_around(registry, lambda: self._configuration))
        self._changing = asyncio.Lock()

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
        return frozenset(toolset.prefix for toolset in self._tools.toolsets.of(tenant).values())

    async def restore(self) -> None:
        """Register what the store has. A toolset whose prefix is taken by now stays in the store, unused."""
        toolsets, allowlists = self._tools.toolsets, self._tools.allowlists
        for kept in await self._records.bindings():
            toolsets = _with_kept(toolsets, kept.tenant, self._bound(kept))
        for record in await self._records.allowlists():
            allowlists = allowlists.with_own(record.tenant, record.agent, _allowed(record))
        self._tools.change(toolsets=toolsets, allowlists=allowlists)

    def configure(self, configuration: Configuration) -> None:
        """Make the toolsets and agents of this configuration, which has been checked, those of the file."""
        self._configuration = configuration
        entries = configuration.toolsets
        wanted = [
            Toolset(
                id=name,
                prefix=entry.prefix,
                source=Shared(executor=self._registry.tools_of(entry.provider)),
                limits=_limits(configuration, name),
                shown=entry.source,
                origin=entries.places[name],
            )
            for name, entry in entries.toolsets.items()
        ]
        self._tools.change(
            toolsets=self._tools.toolsets.configured_as(wanted),
            allowlists=self._tools.allowlists.configured_as(entries.agents),
        )

    def register(self, toolset: Toolset) -> None:
        """Register one of the host's code. Raises `ToolsetRefused` for a prefix that another one has."""
        self._tools.change(toolsets=self._tools.toolsets.with_coded(toolset))

    def allowlist(self, tenant: str, agent: str) -> Allowlist:
        """The toolsets of a tenant's agent; none for one that nobody configured."""
        return self._tools.allowlists.of(tenant, agent) or NOBODY

    async def allow(self, agent: str, toolsets: tuple[str, ...], *, by: Principal, request_id: str) -> Allowlist:
        """Make these the toolsets of the agent for this tenant; holds from the next call on.

        Raises `ToolsetRefused` for an id that the tenant cannot see, and `StoreError`; then nothing has changed.
        """
        async with self._changing:
            try:
                self._check_allowed(agent, toolsets, by.tenant)
                record = AllowlistRecord(tenant=by.tenant, agent=agent, toolsets=list(toolsets), by=by.subject)
                await self._records.keep_allowlist(record)
            except Exception:
                audit("agent.toolsets", "refused", by, agent if is_agent_id(agent) else "_unknown", request_id)
                raise
            allowed = _allowed(record)
            self._tools.change(allowlists=self._tools.allowlists.with_own(by.tenant, agent, allowed))
            audit("agent.toolsets", "done", by, agent, request_id)
            return allowed

    async def bind(self, name: str, binding: Binding, *, by: Principal, request_id: str) -> Toolset:
        """Make this the toolset of the id for this tenant; holds from the next call on.

        Raises `ToolsetRefused`, `InvalidDefinition` for an illegal id or prefix, and `StoreError`; then nothing has
        changed.
        """
        async with self._changing:
            try:
                self._check_source(binding)
                record = BindingRecord(
                    tenant=by.tenant, id=name, prefix=binding.prefix, source=binding.source, by=by.subject
                )
                toolset = self._bound(record)
                self._tools.toolsets.with_own(by.tenant, toolset)
                await self._records.keep_binding(record)
            except Exception as error:
                target = "_unknown" if isinstance(error, InvalidDefinition) else name
                audit("toolset.bind", "refused", by, target, request_id)
                raise
            self._tools.change(toolsets=_with_kept(self._tools.toolsets, by.tenant, toolset))
            audit("toolset.bind", "done", by, name, request_id)
            return toolset

    def _check_allowed(self, agent: str, toolsets: tuple[str, ...], tenant: str) -> None:
        if not is_agent_id(agent):
            raise ToolsetRefused("invalid_agent", f"{agent!r} is no agent id; {AGENT_RULE} are allowed", param="id")
        known = self._tools.toolsets.of(tenant)
        for index, name in enumerate(toolsets):
            if name not in known:
                hint = name_hint(name, known)
                message = f"there is no toolset {name!r}" + (f" ({hint})" if hint else "")
                raise ToolsetRefused("unknown_toolset", message, param=f"toolsets[{index}]")

    def _check_source(self, binding: Binding) -> None:
        if binding.source.startswith(MCP):
            raise ToolsetRefused("not_built", f"this version of toolplug has no {MCP} sources", param="from")
        known = [record.key for record in self._registry.records()]
        key = binding.source.removeprefix(PROVIDER)
        if not binding.source.startswith(PROVIDER) or key not in known:
            hint = name_hint(key, known)
            message = f"from should be {PROVIDER} and the key of a provider" + (f" ({hint})" if hint else "")
            raise ToolsetRefused("unknown_provider", message, param="from")
        if binding.scope != "shared":
            message = "scope must be shared: a provider runs once, for every session"
            raise ToolsetRefused("provider_is_shared", message, param="scope")

    def _bound(self, record: BindingRecord) -> Toolset:
        source = Shared(executor=self._registry.tools_of(record.source.removeprefix(PROVIDER)))
        origin = f"PUT /api/toolset-bindings/{record.id} by {record.by}"
        return Toolset(id=record.id, prefix=record.prefix, source=source, shown=record.source, origin=origin)


def _limits(configuration: Configuration, name: str) -> Layer | None:
    limits = configuration.toolsets.toolsets[name].limits
    if limits == NO_LIMITS:
        return None
    return Layer((TOOLSET, name), limits, partial(configuration.origin, "toolsets", name, "limits"))


def _with_kept(toolsets: Toolsets, tenant: str, toolset: Toolset) -> Toolsets:
    """With a toolset that the store has; without it where its prefix has been taken meanwhile."""
    try:
        return toolsets.with_own(tenant, toolset)
    except ToolsetRefused as error:
        _LOG.warning("toolset %r of tenant %r is not used: %s", toolset.id, tenant, error)
        return toolsets


def _allowed(record: AllowlistRecord) -> Allowlist:
    return Allowlist(tuple(record.toolsets), f"PUT /api/agents/{record.agent}/toolsets by {record.by}")
