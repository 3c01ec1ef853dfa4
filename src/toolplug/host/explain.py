"""Explaining whether a caller can call a tool: every gate in order, or the nearest names of an unknown tool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import EMPTY_CATALOG
from toolplug.catalog.plan import Gate, Plan, Setting, Tool
from toolplug.config.nearest import nearest, nearest_few
from toolplug.config.units import DEFAULT_ORIGIN
from toolplug.errors import AccessError
from toolplug.execution.plans import CALL_SCOPE
from toolplug.host.explain_gates import (
    NO_SCOPE,
    GateVerdict,
    Verdict,
    agent_path,
    ask_detail,
    equipped_gate,
    limit_gates,
    only_agents,
    server_gates,
    toolset_path,
    verdict,
    verdict_of,
    where_a_server_has_it,
)
from toolplug.host.file.packages import only_installed
from toolplug.host.file.settings import PROVIDER
from toolplug.host.file.tool_servers import SERVER_KIND
from toolplug.host.opening.parts import Parts
from toolplug.host.opening.provider_services import always_listed
from toolplug.host.toolsets.sources import KIND as OF_SOURCE
from toolplug.host.views import CREDENTIAL, acting_agent
from toolplug.part_protocols.host_part import HostSession
from toolplug.providers.entry import ProviderRecord
from toolplug.providers.planning import KIND as NATIVE
from toolplug.search.tools import deferral
from toolplug.toolsets.agent_tools import AgentTools
from toolplug.toolsets.saved.saved_toolset import ToolsetOwner
from toolplug.toolsets.toolset import OnDemand, SharedSource, Toolset

MOST = 3


class LikelyName(NamedTuple):
    """A name that was probably meant, and what has it."""

    name: str
    home: str


def _of_toolsets(tools: AgentTools, tenant: str, agent: str | None) -> Iterator[tuple[str, str]]:
    """Yield each tool of a toolset and its home, also of toolsets that the agent may not use."""
    allowlist = None if agent is None else tools.allowlists.of(tenant, agent)
    for toolset in tools.toolsets.of(tenant).values():
        home = f"toolset {toolset.id!r}"
        if agent is not None and (allowlist is None or toolset.id not in allowlist.toolsets):
            home += f", which agent {agent!r} may not use"
        for own in _names(toolset):
            yield f"{toolset.prefix}.{own}", home


def _names(toolset: Toolset) -> list[str]:
    """Return the names of a toolset's tools, as far as they are known before its factory has run."""
    source = toolset.source
    if isinstance(source, SharedSource):
        return list(source.executor.catalog)
    if isinstance(source, OnDemand):
        return list(source.lone.catalog)
    return [item.name for item in source.tools or ()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Whether and why one caller can call one tool.

    `gates` have the order of a call; `settings` are the effective value and the origin of every setting. For a name
    that nobody lists, `gates` tell which source has the tool, if any, and `nearest` the names that may be meant.
    """

    name: str
    found: bool
    provider: str = ""
    gates: tuple[GateVerdict, ...] = ()
    settings: tuple[Setting, ...] = ()
    nearest: tuple[LikelyName, ...] = ()

    @property
    def callable(self) -> bool:
        """Whether this caller may call it now, perhaps once a person has approved that."""
        return self.verdict.callable

    @property
    def verdict(self) -> Verdict:
        """Whether this caller may call it now, and if not, why."""
        found = verdict_of(self.gates)
        if self.found or not found.callable:
            return found
        near = ", ".join(f"{item.name!r} ({item.home})" for item in self.nearest)
        return Verdict("refuses", f"no provider lists a tool {self.name!r}" + (f"; nearest: {near}" if near else ""))

    @property
    def fields(self) -> dict[str, object]:
        """The JSON of the explanation (docs/reference/http.md)."""
        return {
            "name": self.name,
            "found": self.found,
            "callable": self.callable,
            "verdict": self.verdict.answer,
            "reason": self.verdict.reason,
            "provider": self.provider,
            "gates": [asdict(gate) for gate in self.gates],
            "settings": [item._asdict() for item in self.settings],
            "nearest": [item.name for item in self.nearest],
            "homes": {item.name: item.home for item in self.nearest},
        }


class Explainer:
    """Explains tools from the parts of an entered host and its present configuration."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._registry = parts.registry
        self._agents = parts.toolsets.tools
        self._configuration = parts.configuration

    def explain(self, name: str, principal: Principal, agent: str | None, session: HostSession | None) -> Explanation:
        """Return whether and why this principal can call the tool of this name; counts no call."""
        way = agent_path(self._agents, name, principal, agent, None if session is None else session.code)
        if way is None:
            tool, before = self._registry.catalog.find(name) or self._agents.servers.catalog.find(name), ()
        else:
            tool, before = way
        if tool is None and session is not None:
            own = session.executor.catalog  # also while its application is away
            tool = own.find(name) or (None if own.unavailable is None else own.unavailable.find(name))
            before = before if tool is None else before[:1]  # what is lent is in no toolset
        if tool is None and way is None:
            tool = self._parts.running.tools.of(principal).catalog.find(name)
        if tool is None and way is None:  # without an agent: a toolset may have it
            tool, before = self._of_agents_only(name, principal, session)
        if tool is None:
            # A tool in quarantine, or disabled, is why its toolset lists none of this name.
            at = next((place for place, gate in enumerate(before) if gate.gate == "toolset"), len(before))
            lives = tuple(self._where_it_lives(name, principal.tenant))
            gates = (*before[:at], *lives, *before[at:], *self._of_parts(name, None, session))
            near = self._likely(name, principal, agent, session)
            return Explanation(name=name, found=False, gates=gates, nearest=tuple(near))
        return Explanation(
            name=tool.definition.name,
            found=True,
            provider=tool.definition.ref.source,
            gates=(*self._source(tool, principal.tenant), *before, *self._gates(tool, principal, session)),
            settings=(*tool.plan.settings, *self._explain_offer(tool, principal, agent, session)),
        )

    def _of_agents_only(
        self, name: str, principal: Principal, session: HostSession | None
    ) -> tuple[Tool | None, tuple[GateVerdict, ...]]:
        """Return the tool of a toolset of this name, with a gate that tells which agents have it."""
        path = toolset_path(self._agents, name, principal.tenant, None if session is None else session.code)
        if path is None or path.tool is None:
            return None, () if path is None else path.gates
        refusal = only_agents(self._agents, principal.tenant, path.toolset)
        return path.tool, (*path.gates, verdict("agent", refusal, "the request", ""))

    def _explain_offer(
        self, tool: Tool, principal: Principal, agent: str | None, session: HostSession | None
    ) -> Iterator[Setting]:
        """Yield how models are offered the tool if that is configured, and for a deferred one how it is found."""
        offered = tool.definition.offered
        if offered.origin == DEFAULT_ORIGIN:
            return
        if not tool.definition.deferred:
            yield Setting("offer", offered.how, offered.origin)
            return
        try:
            catalog = self._parts.views.executor_for(principal, agent, session).catalog
        except AccessError:
            catalog = EMPTY_CATALOG
        yield Setting("offer", f"{offered.how} ({deferral(catalog, tool.definition)})", offered.origin)

    def _source(self, tool: Tool, tenant: str) -> Iterator[GateVerdict]:
        """Yield the switch of its provider or the state of its server, then later providers with a tool of its name."""
        ref = tool.definition.ref
        running = self._registry.running()
        if ref.kind == NATIVE:
            generation = running.get(ref.source)
            line = generation.entry.origin("enabled") if generation is not None else DEFAULT_ORIGIN
            refusal = None if tool.plan.switch.open else f"provider {ref.source!r} is switched off"
            yield verdict("switch", refusal, line, "on")
        elif ref.kind == SERVER_KIND:
            yield from server_gates(self._parts.servers, tenant, tool)
        elif ref.kind == OF_SOURCE:
            sources, line = self._parts.toolsets.sources, self._configuration.origin("toolsets", ref.source, "from")
            hosts = ", ".join(sources.hosts(tool.definition))
            shown = f"connected, through the hosts {hosts}" if hosts else "connected"
            yield verdict("source", sources.problem(ref.source), line, shown)
        for key, generation in running.items():
            if key != ref.source and tool.definition.name in generation.catalog:
                detail = f"provider {ref.source!r} comes first; {key!r} has a tool of this name, too"
                yield verdict("conflict", None, generation.entry.origin(), detail)

    def _gates(self, tool: Tool, principal: Principal, session: HostSession | None) -> Iterator[GateVerdict]:
        plan = tool.plan
        owner = ToolsetOwner(principal.tenant, principal.subject, None if session is None else session.code)
        equipped = self._parts.equipment.of(owner)
        if equipped is not None:
            yield equipped_gate(equipped, always_listed(self._parts.current), tool, tool.definition.name)
        given = {gate.name: gate for gate in plan.gates}
        yield _make_verdict("tenants", given.pop("tenants", None), principal, "no list of tenants", DEFAULT_ORIGIN)
        yield _policy(plan, given.pop("policy", None), principal)
        scope = None if principal.has_scope(CALL_SCOPE) else NO_SCOPE
        yield verdict("scope", scope, CREDENTIAL, f"{CALL_SCOPE} is held")
        for gate in given.values():
            yield _make_verdict(gate.name, gate, principal, "admits", gate.origin)
        yield from limit_gates(plan)
        asked = self._registry.plugins.implementers("before_call")
        if asked:
            names = ", ".join(map(repr, asked))
            yield verdict("hook", None, "code", f"before_call of {names} is asked at each call, and may refuse it")
        yield from self._of_parts(tool.definition.name, tool, session)

    def _of_parts(self, name: str, tool: Tool | None, session: HostSession | None) -> Iterator[GateVerdict]:
        """Yield what parts decide about a tool, or about a name that no catalog lists."""
        yield from (verdict(*gate) for gate in self._parts.running.explain(name, tool, session))

    def _where_it_lives(self, name: str, tenant: str) -> Iterator[GateVerdict]:
        """Yield providers and servers that have the tool, or its name, with why it is not listed."""
        for key, generation in self._registry.running().items():
            own = self._own_name(name, tenant, f"{PROVIDER}{key}")
            rule = generation.entry.tools.get(own)
            if rule is not None and rule.policy == "disable":
                detail = f"provider {key!r} has it, and its policy is disable"
                yield verdict("policy", detail, generation.entry.origin("tools", own, "policy"), "")
        yield from where_a_server_has_it(self._parts.servers, self._agents, tenant, name)
        entries = self._configuration.providers
        for record in self._idle():
            if name in (record.key, record.type):
                detail = f"provider {record.key!r} is {record.state}: {record.reason or record.fix}"
                is_entry = record.key in entries.keys
                line = self._configuration.origin("providers", record.key) if is_entry else record.distribution
                yield verdict("provider", detail, line, "")

    def _own_name(self, name: str, tenant: str, source: str) -> str:
        """Return the name of a tool without the prefix of a toolset that has this source, if it has one."""
        prefixes = (item.prefix for item in self._agents.toolsets.of(tenant).values() if item.shown == source)
        return next((name.removeprefix(f"{one}.") for one in prefixes if name.startswith(f"{one}.")), name)

    def _idle(self) -> tuple[ProviderRecord, ...]:
        """Return the providers that do not run, with those that are only installed."""
        entries = self._configuration.providers
        return (*self._registry.idle(), *only_installed(entries.installed, entries.types.values()))

    def _likely(
        self, name: str, principal: Principal, agent: str | None, session: HostSession | None
    ) -> Iterator[LikelyName]:
        """Yield at most `MOST` tools with similar names, the nearest first, then a provider that does not run.

        With an agent, or if the name has a dot, toolsets are searched; without an agent, providers and servers. No
        prefixed catalog is built for it: the names are enough.
        """
        try:
            acting = acting_agent(principal, agent)
        except AccessError:
            acting = agent
        homes: dict[str, str] = {}
        if acting is None:
            for what, catalog in (("provider", self._registry.catalog), ("MCP server", self._agents.servers.catalog)):
                homes.update((item, f"{what} {tool.definition.ref.source!r}") for item, tool in catalog.items())
            of_parts = self._parts.running.tools.of(principal).catalog
            homes.update((item, f"part {tool.definition.ref.source!r}") for item, tool in of_parts.items())
        if acting is not None or "." in name:
            homes.update(_of_toolsets(self._agents, principal.tenant, acting))
        if session is not None:
            own = session.executor.catalog
            homes.update((item, "the session") for item in (*own, *(own.unavailable or EMPTY_CATALOG)))
        toolsets = () if acting is None else self._agents.toolsets.of(principal.tenant).values()
        homes.pop(name, None)  # that one is known, and other gates tell of it
        meant = [whole for toolset in toolsets if (whole := f"{toolset.prefix}.{name}") in homes]
        for item in list(dict.fromkeys((*meant, *nearest_few(name, homes, MOST))))[:MOST]:
            yield LikelyName(item, homes[item])
        idle = {record.key: record.state for record in self._idle() if record.key != name}
        near = nearest(name, idle)
        if near is not None:
            yield LikelyName(near, f"provider {near!r}, which is {idle[near]}")


def _policy(plan: Plan, denies: Gate | None, principal: Principal) -> GateVerdict:
    default = Setting("policy", "allow", DEFAULT_ORIGIN)
    policy = next((item for item in plan.settings if item.name == "policy"), default)
    if plan.watched:
        detail = f"{plan.watched} is only watched: every call passes, and those that it would deny are counted"
        return GateVerdict(gate="policy", verdict="passes", detail=detail, origin=policy.origin)
    if plan.approval is not None:
        return GateVerdict(gate="policy", verdict="asks", detail=ask_detail(plan), origin=policy.origin)
    return _make_verdict("policy", denies, principal, policy.value, policy.origin)


def _make_verdict(name: str, gate: Gate | None, principal: Principal, otherwise: str, origin: str) -> GateVerdict:
    if gate is None:
        return verdict(name, None, origin, otherwise)
    return verdict(name, gate.refusal(principal), gate.origin, "admits this caller")
