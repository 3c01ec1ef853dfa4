"""The gates of `explain`: whether each lets a caller's call pass, and what decided that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.plan import Gate, Plan, Tool
from toolplug.config.nearest import name_hint
from toolplug.config.units import DEFAULT_ORIGIN
from toolplug.errors import AgentNotAllowed, AgentRequired
from toolplug.execution.plans import CALL_SCOPE
from toolplug.execution.results import round_up
from toolplug.host.file.settings import MCP
from toolplug.host.file.tool_servers import Discovered, ToolServers
from toolplug.host.views import CREDENTIAL, acting_agent
from toolplug.toolsets.agent_tools import AgentTools, Choice
from toolplug.toolsets.saved.equipped import Stays
from toolplug.toolsets.saved.saved_toolset import SavedToolset
from toolplug.toolsets.toolset import PerSession, Toolset

VerdictWord = Literal["passes", "asks", "refuses"]


class Verdict(NamedTuple):
    """Whether a caller may call a tool, and if not, why, and who may.

    `asks` lets a call pass once a person has approved that call. `GET /api/catalog`, `explain` and the console all give
    this answer; the catalog leaves out what changes from one call to the next: rates, concurrency and breakers.
    """

    answer: VerdictWord
    reason: str = ""

    @property
    def callable(self) -> bool:
        """Whether a call is not refused."""
        return self.answer != "refuses"


PASSES = Verdict("passes")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """The decision of one gate for a caller; `origin` is the line of the configuration, or the call, that decided."""

    gate: str
    verdict: VerdictWord
    detail: str
    origin: str


def verdict(gate: str, refusal: str | None, origin: str, otherwise: str) -> GateVerdict:
    """Return a gate that passes with the detail `otherwise`, or a refusing one if there is a `refusal`."""
    return GateVerdict(
        gate=gate,
        verdict="passes" if refusal is None else "refuses",
        detail=otherwise if refusal is None else refusal,
        origin=origin,
    )


def verdict_of(gates: Sequence[GateVerdict]) -> Verdict:
    """Return the verdict of the gates of a call: that of the first that refuses, else of one that asks."""
    deciding = next((gate for gate in gates if gate.verdict == "refuses"), None)
    deciding = deciding or next((gate for gate in gates if gate.verdict == "asks"), None)
    return PASSES if deciding is None else Verdict(deciding.verdict, deciding.detail)


ASKS = "a person must approve each call"
_ASKS_CALLER = f"{ASKS}, the caller's own client may ask"


def plan_verdict(plan: Plan, principal: Principal) -> Verdict:
    """Return the verdict of a tool's own rules on a caller: its tenants, policy and scopes."""
    if plan.gates:
        refusals = (gate.refusal(principal) for gate in sorted(plan.gates, key=_order))
        refusal = next((text for text in refusals if text is not None), None)
        if refusal is not None:
            return Verdict("refuses", refusal)
    if not principal.has_scope(CALL_SCOPE):
        return Verdict("refuses", NO_SCOPE)
    if plan.approval is not None and not plan.watched:
        return Verdict("asks", ask_detail(plan))
    return PASSES


# As `Explainer` lists them: of several gates that refuse, `explain` and the catalog must name the same one.
def _order(gate: Gate) -> int:
    return ("tenants", "policy").index(gate.name) if gate.name in ("tenants", "policy") else 2


def ask_detail(plan: Plan) -> str:
    """Return who approves a call of a plan that needs an approval."""
    return _ASKS_CALLER if plan.caller_approves else ASKS


NO_SCOPE = f"the scope {CALL_SCOPE!r} is missing"


def only_agents(tools: AgentTools, tenant: str, toolset: Toolset) -> str:
    """Return why a caller without agent does not have the tools of a toolset, and which agents do."""
    lists = tools.allowlists
    agents = [name for name in lists.agents(tenant) if toolset.id in getattr(lists.of(tenant, name), "toolsets", ())]
    if not agents:
        return f"no agent may use its toolset {toolset.id!r}: put it on the allowlist of one (agents.NAME.toolsets)"
    named = ", ".join(map(repr, sorted(agents)))
    return f"only for agent{'s' if len(agents) > 1 else ''} {named}, by toolset {toolset.id!r}"


def explain_unexposed(server: str) -> str:
    """Return why nobody can call the tools of an MCP server that neither a toolset nor a prefix exposes."""
    return f"MCP server {server!r} has it and offers it to nobody: give it a prefix, or a toolset from: mcp:{server}"


# The origin of what discovery has decided: no line of the file says it.
_DISCOVERY = "GET /api/mcp-servers/{id}"


def server_gates(servers: ToolServers, tenant: str, tool: Tool) -> Iterator[GateVerdict]:
    """Yield the switch and the discovery of the MCP server that has the tool."""
    view = next((item for item in servers.servers(tenant) if item.id == tool.definition.ref.source), None)
    if view is not None:
        yield verdict("server", None, view.origin, f"MCP server {view.id!r} is on")
        name = tool.definition.ref.name
        waits = any(found.quarantined and found.name == name for found in view.record.tools)
        refusal = "in quarantine: its definition has changed, and this is not accepted yet" if waits else None
        yield verdict("discovery", refusal, _DISCOVERY.format(id=view.id), _state(view.record))


def where_a_server_has_it(servers: ToolServers, tools: AgentTools, tenant: str, name: str) -> Iterator[GateVerdict]:
    """Yield a gate for each server that has a tool of this name, or of `server/tool`, with why it is not listed.

    For a server that has not said what it has: why, if the name is below its id or one of its prefixes.
    """
    server, slash, own = name.partition("/")
    for view in servers.servers(tenant):
        wanted = own if slash and server == view.id else name.rpartition(".")[2]
        found = next((tool for tool in view.record.tools if tool.name == wanted), None)
        if found is None:
            record = view.record
            unknown = record.last_discovery is None or (record.error and not record.tools)
            if view.enabled and unknown and _is_below(name, view.id, tools, tenant):
                why = record.error or record.status
                before = "" if record.error else "not yet discovered: "
                detail = f"{before}what MCP server {view.id!r} has is not known ({why})"
                yield verdict("discovery", detail, _DISCOVERY.format(id=view.id), "")
            continue
        if not view.enabled:
            yield verdict("server", f"MCP server {view.id!r} has it, and is not enabled", view.origin, "")
        elif view.tools.get(wanted, view.policy) == "disable":
            yield verdict("policy", f"MCP server {view.id!r} has it, and its policy is disable", view.origin, "")
        elif found.quarantined:
            detail = f"in quarantine: MCP server {view.id!r} has changed its tool {wanted!r}; nobody accepted it yet"
            yield verdict("quarantine", detail, _DISCOVERY.format(id=view.id), "")
        else:
            yield verdict("toolset", explain_unexposed(view.id), view.origin, "")


def _is_below(name: str, server: str, tools: AgentTools, tenant: str) -> bool:
    """Return whether a name is that of a tool of this server: `server/tool`, or below one of its prefixes."""
    exposing = [item.prefix for item in tools.toolsets.of(tenant).values() if item.shown == f"{MCP}{server}"]
    own = tools.toolsets.servers.get(server)
    prefixes = (server, *exposing, *(() if own is None else (own.prefix,)))
    return name.startswith((f"{server}/", *(f"{prefix}{joint}" for prefix in prefixes for joint in (".", "__"))))


def _state(record: Discovered) -> str:
    if record.stale:
        return f"its tools are the last good ones: {record.error or 'they are looked for again'}"
    return f"its tools are those of {record.last_discovery}" if record.last_discovery else record.status


_GATES = {"max_concurrency": "concurrency"}


def limit_gates(plan: Plan) -> Iterator[GateVerdict]:
    """Yield the breaker of abandoned calls, then the limiters of each level, in the order of a call."""
    running, limit = plan.abandoned.running, plan.abandoned.limit
    refusal = f"{running} calls were given up and still run" if running >= limit else None
    yield verdict("breaker", refusal, DEFAULT_ORIGIN, f"{running} of at most {limit} calls given up and still running")
    # The settings of one name have the order of its limiters: the most specific level first.
    names = {limiter.setting for limiter in plan.limiters}
    origins = {name: iter([item.origin for item in plan.settings if item.name == name]) for name in names}
    for limiter in plan.limiters:
        said = limiter.refusal()
        text = None if said is None else f"{said.what}, retry in {round_up(said.retry_after_s)} s"
        origin = next(origins[limiter.setting], DEFAULT_ORIGIN)
        yield verdict(_GATES.get(limiter.setting, limiter.setting), text, origin, limiter.usage)


class ToolsetPath(NamedTuple):
    """The toolset that has a name, its tool of this name, and the gate of the toolset."""

    toolset: Toolset
    tool: Tool | None
    gates: tuple[GateVerdict, ...]


def toolset_path(tools: AgentTools, name: str, tenant: str, session: str | None) -> ToolsetPath | None:
    """Return the path of this name through a toolset of the tenant; None if no toolset has its prefix."""
    found = next(_owners(tools, name, tenant, session), None)
    if found is None:
        return None
    toolset, tool = found
    shown = f"toolset {toolset.id!r} has the prefix {toolset.prefix!r}, its tools are those of {toolset.shown}"
    gate = verdict("toolset", None if tool is not None else _missing(toolset, shown), toolset.origin, shown)
    return ToolsetPath(toolset, tool, (gate,))


class AgentPath(NamedTuple):
    """The path of a call through an agent: the toolset's tool, allowed or not, and the gates before it."""

    tool: Tool | None
    gates: tuple[GateVerdict, ...]


def agent_path(
    tools: AgentTools, name: str, principal: Principal, agent: str | None, session: str | None
) -> AgentPath | None:
    """Return the path of a call of this name for the agent that the principal acts as; None if it acts as none."""
    try:
        acting = acting_agent(principal, agent)
    except (AgentNotAllowed, AgentRequired) as error:
        return AgentPath(None, (verdict("agent", str(error), CREDENTIAL, ""),))
    if acting is None:
        return None
    first = verdict("agent", None, CREDENTIAL, f"it may act as agent {acting!r}")
    path = toolset_path(tools, name, principal.tenant, session)
    if path is None:
        return AgentPath(None, (first, _no_toolset(tools, name, principal.tenant)))
    return AgentPath(path.tool, (first, *path.gates, _check_allowed(tools, path.toolset, principal.tenant, acting)))


def _owners(tools: AgentTools, name: str, tenant: str, session: str | None) -> Iterator[tuple[Toolset, Tool | None]]:
    """Yield the toolset that has the tool, by canonical or wire name, then those with the prefix of the name."""
    known = tools.toolsets.of(tenant)
    # A wire name joins prefix and tool with `__`, as a dot is illegal in function names of model APIs.
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
    return f"{shown}, and it lists none of this name"


def _no_toolset(tools: AgentTools, name: str, tenant: str) -> GateVerdict:
    prefix, dot, _ = name.partition(".")
    if not dot:
        refusal = "the tools of an agent are called prefix.tool"
    else:
        hint = name_hint(prefix, [item.prefix for item in tools.toolsets.of(tenant).values()])
        refusal = f"no toolset has the prefix {prefix!r}" + (f" ({hint})" if hint else "")
    return verdict("toolset", refusal, DEFAULT_ORIGIN, "")


def _check_allowed(tools: AgentTools, toolset: Toolset, tenant: str, agent: str) -> GateVerdict:
    allowlist = tools.allowlists.of(tenant, agent)
    if allowlist is None:
        refusal = f"agent {agent!r} is not configured, so that its allowlist is empty"
        return verdict("allowlist", refusal, DEFAULT_ORIGIN, "")
    refusal = None if toolset.id in allowlist.toolsets else f"agent {agent!r} may not use toolset {toolset.id!r}"
    return verdict("allowlist", refusal, allowlist.origin, f"agent {agent!r} may use toolset {toolset.id!r}")


def equipped_gate(toolset: SavedToolset, stays: Stays, tool: Tool, called: str) -> GateVerdict:
    """Return whether the equipped toolset leaves in the tool of this canonical name; `stays`: whatever is equipped."""
    name = toolset.name
    left_in = called in toolset.tools or stays(tool)
    refusal = None if left_in else f"saved toolset {name!r} is equipped, and does not have this tool"
    detail = f"saved toolset {name!r} is equipped, and leaves it in"
    return verdict("equipped", refusal, f"POST /api/toolsets/{name}/equip", detail)
