"""The names that were probably meant, and where each lives: at a provider, in a toolset or in a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.config.nearest import nearest_few
from toolplug.sessions.session import Session
from toolplug.toolsets.agent_tools import AgentTools
from toolplug.toolsets.toolset import OnDemand, Shared, Toolset

MOST = 3


class LikelyName(NamedTuple):
    """A name that a tool or provider has, and what it belongs to."""

    name: str
    home: str


def likely_tools(
    name: str, listed: Catalog, tools: AgentTools, tenant: str, agent: str | None, session: Session | None
) -> list[LikelyName]:
    """The tools that are called alike, the most like first; `listed` are those of the providers.

    With an agent, or where the name has a dot, those of toolsets, also of such that the agent may not use: without an
    agent, those of the providers. Reads no catalog under a prefix that nobody has read: names are enough.
    """
    homes: dict[str, str] = {}
    if agent is None:
        homes.update((item, f"provider {tool.definition.ref.source!r}") for item, tool in listed.items())
    if agent is not None or "." in name:
        homes.update(_of_toolsets(tools, tenant, agent))
    if session is not None:
        homes.update((item, "the session") for item in _of_session(session))
    meant = [] if agent is None else list(_under_prefixes(name, tools, tenant, homes))
    meant += nearest_few(name, homes, MOST)
    return [LikelyName(item, homes[item]) for item in dict.fromkeys(meant)][:MOST]


def _of_toolsets(tools: AgentTools, tenant: str, agent: str | None) -> Iterator[tuple[str, str]]:
    allowlist = None if agent is None else tools.allowlists.of(tenant, agent)
    for toolset in tools.toolsets.of(tenant).values():
        home = f"toolset {toolset.id!r}"
        if agent is not None and (allowlist is None or toolset.id not in allowlist.toolsets):
            home += f", which agent {agent!r} may not use"
        for own in _names(toolset):
            yield f"{toolset.prefix}.{own}", home


def _under_prefixes(name: str, tools: AgentTools, tenant: str, homes: Mapping[str, str]) -> Iterator[str]:
    """What a bare name is called in the toolsets that have a tool of it."""
    for toolset in tools.toolsets.of(tenant).values():
        whole = f"{toolset.prefix}.{name}"
        if whole in homes:
            yield whole


def _names(toolset: Toolset) -> list[str]:
    """The names of its tools, as far as they are known before its factory has run."""
    source = toolset.source
    if isinstance(source, Shared):
        return list(source.executor.catalog)
    if isinstance(source, OnDemand):
        return list(source.lone.catalog)
    return [item.name for item in source.tools or ()]


def _of_session(session: Session) -> list[str]:
    own = session.executor.catalog
    return [*own, *(own.away or EMPTY_CATALOG)]
