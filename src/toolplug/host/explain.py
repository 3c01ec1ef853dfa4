"""Explaining why a tool can be called or not: every gate in order, and the nearest names of an unknown tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.plan import Gate, Plan, Setting, Tool
from toolplug.config.nearest import nearest, nearest_few
from toolplug.discovery.sanitise import KIND as OF_SERVER
from toolplug.errors import AccessError
from toolplug.execution.plans import CALL_SCOPE
from toolplug.execution.resolved_limits import DEFAULT_ORIGIN
from toolplug.host.explain_gates import (
    GateVerdict,
    agent_path,
    limit_gates,
    server_gates,
    verdict,
    where_a_server_has_it,
)
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.provider_entries import only_installed
from toolplug.host.parts import Saved
from toolplug.host.servers.mcp_servers import McpServers
from toolplug.host.views import CREDENTIAL, acting_agent
from toolplug.providers.entry import ProviderRecord
from toolplug.providers.planning import KIND as NATIVE
from toolplug.providers.registry import FunctionRegistry
from toolplug.sessions.session import Session
from toolplug.sessions.session_tool import KIND as LENT
from toolplug.toolsets.agent_tools import AgentTools
from toolplug.toolsets.saved.saved_toolset import ToolsetOwner
from toolplug.toolsets.toolset import OnDemand, SharedSource, Toolset

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
        homes.update(
            (item, f"MCP server {tool.definition.ref.source!r}") for item, tool in tools.servers.catalog.items()
        )
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
    if isinstance(source, SharedSource):
        return list(source.executor.catalog)
    if isinstance(source, OnDemand):
        return list(source.lone.catalog)
    return [item.name for item in source.tools or ()]


def _of_session(session: Session) -> list[str]:
    own = session.executor.catalog
    return [*own, *(own.unavailable or EMPTY_CATALOG)]


_ASK = "ask: a person must approve each call"
_ASK_CALLER = "ask: a person must approve each call, the caller's own client may ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One tool as one caller meets it.

    `gates` are in the order of a call; `settings` are the effective value and the origin of every knob. For a name that
    nobody lists, `gates` tell where the tool lives, if that is known, and `nearest` the names that were probably meant.
    """

    name: str
    found: bool
    provider: str = ""
    gates: tuple[GateVerdict, ...] = ()
    settings: tuple[Setting, ...] = ()
    nearest: tuple[LikelyName, ...] = ()

    @property
    def callable(self) -> bool:
        """Does no gate refuse this caller."""
        return self.found and all(gate.verdict != "refused" for gate in self.gates)

    @property
    def asks(self) -> bool:
        """Must a person approve each call."""
        return any(gate.verdict == "ask" for gate in self.gates)


class Explainer:
    """Draws explanations from what runs under one entered host, and from the configuration that holds now."""

    def __init__(
        self,
        registry: FunctionRegistry,
        agents: AgentTools,
        servers: McpServers,
        saved: Saved,
        configuration: Configuration,
    ) -> None:
        self._registry = registry
        self._agents = agents
        self._servers = servers
        self._saved = saved
        self._configuration = configuration

    def explain(self, name: str, principal: Principal, agent: str | None, session: Session | None) -> Explanation:
        """Why this principal can call the tool of this name, or cannot; counts no call."""
        way = agent_path(self._agents, name, principal, agent, None if session is None else session.code)
        before = () if way is None else way.gates
        tool = self._without_agent(name) if way is None else way.tool
        if tool is None and session is not None:
            tool = _lent(session, name)
            before = before if tool is None else before[:1]  # what is lent is in no toolset
        if tool is None:
            gates = (*before, *self._hidden_of(session, name), *self._where_it_lives(name, principal.tenant))
            near = self._likely(name, principal, agent, session)
            return Explanation(name=name, found=False, gates=gates, nearest=tuple(near))
        return Explanation(
            name=tool.definition.name,
            found=True,
            provider=tool.definition.ref.source,
            gates=(*self._source(tool, principal.tenant), *before, *self._gates(tool, principal, session)),
            settings=tool.plan.settings,
        )

    def _without_agent(self, name: str) -> Tool | None:
        return self._registry.catalog.find(name) or self._agents.servers.catalog.find(name)

    def _source(self, tool: Tool, tenant: str) -> Iterator[GateVerdict]:
        """The switch of its provider or the state of its server, and providers that have its name and come later."""
        ref = tool.definition.ref
        running = self._registry.running()
        if ref.kind == NATIVE:
            generation = running.get(ref.source)
            line = generation.entry.origin("enabled") if generation is not None else DEFAULT_ORIGIN
            refusal = None if tool.plan.switch.open else f"provider {ref.source!r} is switched off"
            yield verdict("switch", refusal, line, "on")
        elif ref.kind == OF_SERVER:
            yield from server_gates(self._servers, tenant, tool)
        for key, generation in running.items():
            if key != ref.source and tool.definition.name in generation.catalog:
                detail = f"provider {ref.source!r} comes first; {key!r} has a tool of this name, too"
                yield verdict("conflict", None, generation.entry.origin(), detail)

    def _gates(self, tool: Tool, principal: Principal, session: Session | None) -> Iterator[GateVerdict]:
        plan = tool.plan
        equipped = self._saved.gate(ToolsetOwner(principal.tenant, principal.subject, session and session.code))
        if equipped is not None:
            yield equipped.verdict(tool)
        given = {gate.name: gate for gate in plan.gates}
        yield _said("tenants", given.pop("tenants", None), principal, "no list of tenants", DEFAULT_ORIGIN)
        yield _policy(plan, given.pop("policy", None), principal)
        scope = None if principal.has_scope(CALL_SCOPE) else f"the scope {CALL_SCOPE!r} is missing"
        yield verdict("scope", scope, CREDENTIAL, f"{CALL_SCOPE} is held")
        for gate in given.values():
            yield _said(gate.name, gate, principal, "admits", gate.origin)
        yield from limit_gates(plan)
        if plan.observers:
            yield verdict("hook", None, "code", "host-wide hooks are asked at each call, and may veto it")
        if plan.ref.kind == LENT and session is not None:
            yield _application(session)

    def _hidden_of(self, session: Session | None, name: str) -> Iterator[GateVerdict]:
        """The rule that hides what the session was lent."""
        hides = self._configuration.settings.sessions.policy == "disable"
        if hides and session is not None and name in session.state.tools.tools:
            detail = "the session was lent it, and the policy of sessions is disable"
            yield verdict("policy", detail, self._configuration.origin("sessions", "policy"), "")

    def _where_it_lives(self, name: str, tenant: str) -> Iterator[GateVerdict]:
        """A provider or a server that has the tool, or is called like it, and why it does not list it."""
        for key, generation in self._registry.running().items():
            rule = generation.entry.tools.get(name)
            if rule is not None and rule.policy == "disable":
                detail = f"provider {key!r} has it, and its policy is disable"
                yield verdict("policy", detail, generation.entry.origin("tools", name, "policy"), "")
        yield from where_a_server_has_it(self._servers, tenant, name)
        entries = self._configuration.providers
        for record in self._idle():
            if name in (record.key, record.type):
                detail = f"provider {record.key!r} is {record.state}: {record.reason or record.fix}"
                line = entries.line(record.key) if record.key in entries.keys else record.distribution
                yield verdict("provider", detail, line, "")

    def _idle(self) -> tuple[ProviderRecord, ...]:
        """The providers that do not run, those that are only installed among them."""
        return (*self._registry.idle(), *only_installed(self._configuration.providers))

    def _likely(
        self, name: str, principal: Principal, agent: str | None, session: Session | None
    ) -> Iterator[LikelyName]:
        """Tools that are called alike, then a provider that does not run."""
        try:
            acting = acting_agent(principal, agent)
        except AccessError:
            acting = agent
        listed = self._registry.catalog
        yield from likely_tools(name, listed, self._agents, principal.tenant, acting, session)
        idle = {record.key: record.state for record in self._idle() if record.key != name}
        near = nearest(name, idle)
        if near is not None:
            yield LikelyName(near, f"provider {near!r}, which is {idle[near]}")


def _lent(session: Session, name: str) -> Tool | None:
    """The session's tool of this name, also while its application is away."""
    own = session.executor.catalog
    return own.find(name) or (None if own.unavailable is None else own.unavailable.find(name))


def _application(session: Session) -> GateVerdict:
    refusal = None if session.reachable else "the application that lends it is not connected (plugin_gone)"
    return verdict(
        "session", refusal, "POST /api/sessions/{code}/register-tools", f"application {session.plugin_status}"
    )


def _policy(plan: Plan, denies: Gate | None, principal: Principal) -> GateVerdict:
    default = Setting("policy", "allow", DEFAULT_ORIGIN)
    policy = next((item for item in plan.settings if item.knob == "policy"), default)
    if plan.approval is not None:
        detail = _ASK_CALLER if plan.caller_approves else _ASK
        return GateVerdict(gate="policy", verdict="ask", detail=detail, origin=policy.origin)
    return _said("policy", denies, principal, policy.value, policy.origin)


def _said(name: str, gate: Gate | None, principal: Principal, otherwise: str, origin: str) -> GateVerdict:
    if gate is None:
        return verdict(name, None, origin, otherwise)
    return verdict(name, gate.refusal(principal), gate.origin, "admits this caller")
