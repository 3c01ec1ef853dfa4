"""Registered toolsets and the allowlists of agents, by origin: configuration, code, or a tenant over HTTP."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from toolplug.errors import ApiError
from toolplug.toolsets.toolset import Toolset


class Allowlist(NamedTuple):
    """The ids of an agent's toolsets, in the order in which a model sees them; `origin` is where it was configured."""

    toolsets: tuple[str, ...]
    origin: str


UNREADABLE = Allowlist((), "a record of the store that cannot be read; setting the toolsets replaces it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowlists:
    """The allowlists of the configuration by agent, and those of tenants by tenant and agent, which override them.

    `unreadable` are the tenants and agents whose own list is known to exist and cannot be read: they have no toolsets,
    as the list that it overrides may be a wider one.
    """

    configured: Mapping[str, Allowlist] = field(default_factory=dict[str, Allowlist])
    own: Mapping[tuple[str, str], Allowlist] = field(default_factory=dict[tuple[str, str], Allowlist])
    unreadable: Container[tuple[str, str]] = ()

    def of(self, tenant: str, agent: str) -> Allowlist | None:
        """Return the allowlist of a tenant's agent; None if it is not configured."""
        if (tenant, agent) in self.unreadable:
            return UNREADABLE
        # A named tuple is true, also one without toolsets: an empty list of the tenant still replaces that of the file.
        return self.own.get((tenant, agent)) or self.configured.get(agent)

    def agents(self, tenant: str) -> frozenset[str]:
        return frozenset([*self.configured, *(agent for of, agent in self.own if of == tenant)])

    def configured_as(self, lists: Mapping[str, Allowlist]) -> Allowlists:
        """Return a copy with these as the configuration's."""
        return replace(self, configured=MappingProxyType(dict(lists)))

    def with_own(self, lists: Mapping[tuple[str, str], Allowlist]) -> Allowlists:
        """Return a copy with these for some tenants' agents."""
        return replace(self, own=MappingProxyType({**self.own, **lists}))


_NONE: Mapping[str, Toolset] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolsets:
    """All toolsets by id. A tenant's own override the code's, and these the configuration's.

    `servers` are the MCP servers that have a prefix, by id: they cannot be chosen as toolsets, but are in all catalogs
    without an agent. A prefix is unique among those that a tenant can see; a change that breaks this raises `ApiError`.
    """

    configured: Mapping[str, Toolset] = field(default_factory=dict[str, Toolset])
    coded: Mapping[str, Toolset] = field(default_factory=dict[str, Toolset])
    own: Mapping[str, Mapping[str, Toolset]] = field(default_factory=dict[str, Mapping[str, Toolset]])
    servers: Mapping[str, Toolset] = field(default_factory=dict[str, Toolset])

    def of(self, tenant: str | None) -> Mapping[str, Toolset]:
        """Return the toolsets that this tenant can see; for None, those that all tenants can."""
        everybody = {**self.configured, **self.coded}
        return {**everybody, **self.own.get(tenant, _NONE)} if tenant is not None else everybody

    def prefixes(self, tenant: str) -> frozenset[str]:
        """Return the prefixes of the toolsets that this tenant can see, and of servers."""
        return frozenset(item.prefix for item in (*self.of(tenant).values(), *self.servers.values()))

    def configured_as(self, toolsets: Iterable[Toolset], servers: Iterable[Toolset] = ()) -> Toolsets:
        """Return a copy with these as the configuration's, and these servers under their prefixes."""
        mine = {item.id: item for item in toolsets}
        exposed = {item.id: item for item in servers}
        changed = replace(self, configured=MappingProxyType(mine), servers=MappingProxyType(exposed))
        for item in mine.values():
            # The code's toolset of the same id replaces it, so that its prefix counts for nothing.
            if item.id not in self.coded:
                changed._check_prefix(item, None)
        return changed

    def with_coded(self, toolset: Toolset) -> Toolsets:
        """Return a copy with this toolset of the host's code, instead of another with its id."""
        self._check_prefix(toolset, None)
        return replace(self, coded=MappingProxyType({**self.coded, toolset.id: toolset}))

    def with_own(self, tenant: str, toolset: Toolset) -> Toolsets:
        """Return a copy with this toolset of a tenant, instead of another with its id."""
        self._check_prefix(toolset, tenant)
        mine = MappingProxyType({**self.own.get(tenant, _NONE), toolset.id: toolset})
        return replace(self, own=MappingProxyType({**self.own, tenant: mine}))

    def every(self) -> Iterable[Toolset]:
        """Return all registrations, including those that another with the same id overrides."""
        yield from self.configured.values()
        yield from self.coded.values()
        yield from self.servers.values()
        for mine in self.own.values():
            yield from mine.values()

    def _check_prefix(self, toolset: Toolset, tenant: str | None) -> None:
        others = [("toolset", other) for other in self.of(tenant).values() if other.id != toolset.id]
        for kind, other in (*others, *(("MCP server", server) for server in self.servers.values())):
            if other.prefix == toolset.prefix:
                message = f"prefix {toolset.prefix!r} is that of {kind} {other.id!r} ({other.origin}); give another one"
                raise ApiError("prefix_taken", message, param="prefix")
