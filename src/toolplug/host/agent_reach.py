"""What the agents of a credential can reach: their toolsets, and the providers and MCP servers behind them.

A principal whose key or token names agents is shown nothing else (docs/reference/http.md, *whose catalog*). A request
that names no agent, such as one for a provider's route, counts for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

from toolplug.catalog.call import Principal
from toolplug.host.file.settings import MCP, PROVIDER, split_source
from toolplug.toolsets.agent_tools import AgentTools, Choice
from toolplug.toolsets.toolset import Toolset


class AgentReach(NamedTuple):
    """`toolsets` in the order of the allowlists, each once; `providers` by key, `servers` by id."""

    toolsets: tuple[Toolset, ...] = ()
    providers: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tools: AgentTools, tenant: str, agents: Iterable[str]) -> Self:
        """Look through the allowlists as they are now."""
        found: dict[str, Toolset] = {}
        for agent in agents:
            found.update({toolset.id: toolset for toolset in tools.chosen(Choice(tenant, agent))})
        sources: dict[str, set[str]] = {PROVIDER: set(), MCP: set()}
        for toolset in found.values():
            kind, name = split_source(toolset.shown) or (None, "")
            if kind is not None:
                sources[kind].add(name)
        return cls(tuple(found.values()), frozenset(sources[PROVIDER]), frozenset(sources[MCP]))


NO_REACH = AgentReach()


def reach_of(tools: AgentTools, principal: Principal) -> AgentReach | None:
    """What all agents of the principal can reach; None for one that is limited to no agents."""
    if principal.agents is None:
        return None
    return AgentReach.of(tools, principal.tenant, sorted(principal.agents))


def acts_as_nobody(principal: Principal, agent: str | None) -> bool:
    """Whether the credential has an empty list of agents: it lists nothing and calls nothing."""
    return agent is None and principal.agents is not None and not principal.agents
