"""Which toolsets each agent may use: none where nobody said so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple


class Allowlist(NamedTuple):
    """The ids of an agent's toolsets, in the order in which a model sees them; `origin` is who said so, and where."""

    toolsets: tuple[str, ...]
    origin: str


def _nothing() -> Mapping[str, Allowlist]:
    return MappingProxyType({})


def _nobody() -> Mapping[tuple[str, str], Allowlist]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowlists:
    """The allowlists of the configuration by agent, and over them those of a tenant, by tenant and agent."""

    configured: Mapping[str, Allowlist] = field(default_factory=_nothing)
    own: Mapping[tuple[str, str], Allowlist] = field(default_factory=_nobody)

    def of(self, tenant: str, agent: str) -> Allowlist | None:
        """The allowlist of a tenant's agent, None for one that nobody configured."""
        return self.own.get((tenant, agent)) or self.configured.get(agent)

    def configured_as(self, lists: Mapping[str, Allowlist]) -> Allowlists:
        """With these as the configuration's."""
        return replace(self, configured=MappingProxyType(dict(lists)))

    def with_own(self, lists: Mapping[tuple[str, str], Allowlist]) -> Allowlists:
        """With these for some tenants' agents."""
        return replace(self, own=MappingProxyType({**self.own, **lists}))
