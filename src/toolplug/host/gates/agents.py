"""The gates that stand before an agent's tools: may the credential act as it, whose prefix is it, is it allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.plan import Tool
from toolplug.config.nearest import name_hint
from toolplug.errors import AgentNotAllowed, AgentRequired
from toolplug.execution.knobs import DEFAULT_ORIGIN
from toolplug.host.catalogs.views import CREDENTIAL, acting_agent
from toolplug.host.gates.verdict import GateVerdict, verdict
from toolplug.toolsets.agent_tools import AgentTools, Choice
from toolplug.toolsets.toolset import PerSession, Toolset


class AgentWay(NamedTuple):
    """The way of a call through an agent: the tool that a toolset has, allowed or not, and the gates before it."""

    tool: Tool | None
    gates: tuple[GateVerdict, ...]


def agent_way(
    tools: AgentTools, name: str, principal: Principal, agent: str | None, session: str | None
) -> AgentWay | None:
    """How a call of this name goes for the agent that the principal acts as; None where it acts as none."""
    try:
        acting = acting_agent(principal, agent)
    except (AgentNotAllowed, AgentRequired) as error:
        return AgentWay(None, (verdict("agent", str(error), CREDENTIAL, ""),))
    if acting is None:
        return None
    gates = [verdict("agent", None, CREDENTIAL, f"it may act as agent {acting!r}")]
    found = next(_owners(tools, name, principal.tenant, session), None)
    if found is None:
        gates.append(_no_toolset(tools, name, principal.tenant))
        return AgentWay(None, tuple(gates))
    toolset, tool = found
    shown = f"toolset {toolset.id!r} has the prefix {toolset.prefix!r}, its tools are those of {toolset.shown}"
    gates.append(verdict("toolset", None if tool is not None else _missing(toolset, shown), toolset.origin, shown))
    gates.append(_allowed(tools, toolset, principal.tenant, acting))
    return AgentWay(tool, tuple(gates))


def _owners(tools: AgentTools, name: str, tenant: str, session: str | None) -> Iterator[tuple[Toolset, Tool | None]]:
    """The toolset whose tool is called so, by canonical or wire name; else the one whose prefix the name has."""
    known = tools.toolsets.of(tenant)
    near = [item for item in known.values() if name.startswith((f"{item.prefix}.", f"{item.prefix}_"))]
    for toolset in near:
        tool = tools.executor(Choice(tenant, None, (toolset.id,)), session).catalog.find(name)
        if tool is not None:
            yield toolset, tool
    for toolset in near:
        if name.startswith(f"{toolset.prefix}."):
            yield toolset, None


def _missing(toolset: Toolset, shown: str) -> str:
    if isinstance(toolset.source, PerSession) and toolset.source.tools is None:
        return f"{shown}; which tools there are is not known before a session has opened it"
    return f"{shown}, and none of them is called so"


def _no_toolset(tools: AgentTools, name: str, tenant: str) -> GateVerdict:
    prefix, dot, _ = name.partition(".")
    if not dot:
        refusal = "the tools of an agent are called prefix.tool"
    else:
        hint = name_hint(prefix, [item.prefix for item in tools.toolsets.of(tenant).values()])
        refusal = f"no toolset has the prefix {prefix!r}" + (f" ({hint})" if hint else "")
    return verdict("toolset", refusal, DEFAULT_ORIGIN, "")


def _allowed(tools: AgentTools, toolset: Toolset, tenant: str, agent: str) -> GateVerdict:
    allowlist = tools.allowlists.of(tenant, agent)
    if allowlist is None:
        refusal = f"agent {agent!r} is not configured, so that its allowlist is empty"
        return verdict("allowlist", refusal, DEFAULT_ORIGIN, "")
    refusal = None if toolset.id in allowlist.toolsets else f"agent {agent!r} may not use toolset {toolset.id!r}"
    return verdict("allowlist", refusal, allowlist.origin, f"agent {agent!r} may use toolset {toolset.id!r}")
