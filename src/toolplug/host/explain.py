"""Why a tool can be called, or cannot: every gate in the order of a call, with what decided (CONTRACT.md section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.plan import Gate, Plan, Setting, Tool
from toolplug.config.nearest import nearest
from toolplug.execution.gates import CALL_SCOPE
from toolplug.execution.knobs import DEFAULT_ORIGIN
from toolplug.host.agent_gates import AgentWay
from toolplug.host.equipped_gate import EquippedGate
from toolplug.host.gate_verdict import GateVerdict, verdict
from toolplug.host.views import CREDENTIAL
from toolplug.providers.generation import Generation
from toolplug.providers.state import ProviderRecord, ProviderState
from toolplug.sessions.session import Session
from toolplug.sessions.session_tool import KIND as LENT

_RUNNING = frozenset({ProviderState.ACTIVE, ProviderState.SHADOWED})
_POLICIES = {"ask": "ask: a person must approve each call"}


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
    nearest: tuple[str, ...] = ()

    @property
    def callable(self) -> bool:
        """Does every gate let this caller through."""
        return self.found and all(gate.verdict == "open" for gate in self.gates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explainer:
    """What an explanation is drawn from: the whole catalog, what runs, and what is known of the rest.

    `lines` maps the key of an entry to the line that it stands at. `agent` is the way of the call through the agent
    that the caller acts as, None for none; `session` is the one whose tools come last, `equipped` what the caller has
    chosen among all of them.
    """

    catalog: Catalog
    running: Mapping[str, Generation]
    records: Sequence[ProviderRecord]
    lines: Mapping[str, str] = field(default_factory=dict[str, str])
    agent: AgentWay | None = None
    session: Session | None = None
    equipped: EquippedGate | None = None

    def explain(self, name: str, principal: Principal) -> Explanation:
        """Why this principal can call the tool of this name, or cannot."""
        tool = (self.catalog.find(name) if self.agent is None else self.agent.tool) or self._lent(name)
        if tool is None:
            before = self.agent.gates if self.agent is not None else ()
            gates = (*before, *self._where_it_lives(name))
            return Explanation(name=name, found=False, gates=gates, nearest=self._nearest(name))
        return Explanation(
            name=tool.definition.name,
            found=True,
            provider=tool.definition.ref.source,
            gates=tuple(self._gates(tool, principal)),
            settings=tool.plan.settings,
        )

    def _gates(self, tool: Tool, principal: Principal) -> Iterator[GateVerdict]:
        plan = tool.plan
        if plan.ref.kind == LENT and self.session is not None:
            yield _application(self.session)
        else:
            yield self._switch(plan)
            yield from self.agent.gates if self.agent is not None else ()
        yield from self._shadowed(tool)
        if self.equipped is not None:
            yield self.equipped.verdict(tool)
        given = {gate.name: gate for gate in plan.gates}
        yield _said("tenants", given.pop("tenants", None), principal, "no list of tenants", DEFAULT_ORIGIN)
        policy = next((item for item in plan.settings if item.knob == "policy"), Setting("policy", "allow", "default"))
        yield _said(
            "policy", given.pop("policy", None), principal, _POLICIES.get(policy.value, policy.value), policy.origin
        )
        scope = None if principal.has_scope(CALL_SCOPE) else f"the scope {CALL_SCOPE!r} is missing"
        yield verdict("scope", scope, CREDENTIAL, f"{CALL_SCOPE} is held")
        for gate in given.values():
            yield _said(gate.name, gate, principal, "admits", gate.origin)
        yield from _counters(plan)
        if plan.observers:
            yield verdict("hook", None, "code", "host-wide hooks are asked at each call, and may veto it")

    def _switch(self, plan: Plan) -> GateVerdict:
        key = plan.ref.source
        generation = self.running.get(key)
        line = generation.entry.origin("enabled") if generation is not None else DEFAULT_ORIGIN
        return verdict("switch", None if plan.switch.open else f"provider {key!r} is switched off", line, "on")

    def _lent(self, name: str) -> Tool | None:
        """The session's tool of this name, also while its application is away."""
        if self.session is None:
            return None
        lent = self.session.executor.catalog
        return lent.find(name) or (None if lent.away is None else lent.away.find(name))

    def _shadowed(self, tool: Tool) -> Iterator[GateVerdict]:
        """The other providers that have a tool of this name and come later."""
        ref = tool.definition.ref
        for key, generation in self.running.items():
            if key != ref.source and tool.definition.name in generation.catalog:
                detail = f"provider {ref.source!r} comes first; {key!r} has a tool of this name, too"
                yield verdict("conflict", None, generation.entry.origin(), detail)

    def _where_it_lives(self, name: str) -> Iterator[GateVerdict]:
        """A provider that has the tool, or is called like it, and why it does not list it."""
        for key, generation in self.running.items():
            rule = generation.entry.tools.get(name)
            if rule is not None and rule.policy == "disable":
                detail = f"provider {key!r} has it, and its policy is disable"
                yield verdict("policy", detail, generation.entry.origin("tools", name, "policy"), "")
        for record in self.records:
            if record.state not in _RUNNING and name in (record.key, record.type):
                detail = f"provider {record.key!r} is {record.state}: {record.reason or record.fix}"
                yield verdict("provider", detail, self.lines.get(record.key, record.distribution), "")

    def _nearest(self, name: str) -> tuple[str, ...]:
        """The listed name that is most like it, then a provider's that does not run."""
        idle = [record.key for record in self.records if record.state not in _RUNNING and record.key != name]
        listed = nearest(name, self.catalog) if self.agent is None else self.agent.nearest
        found = (listed, nearest(name, idle))
        return tuple(dict.fromkeys(item for item in found if item is not None))


def _application(session: Session) -> GateVerdict:
    refusal = None if session.reachable else "the application that lends it is not connected (plugin_gone)"
    return verdict(
        "session", refusal, "POST /api/sessions/{code}/register-tools", f"application {session.plugin_status}"
    )


def _counters(plan: Plan) -> Iterator[GateVerdict]:
    running, limit = plan.brake.running, plan.brake.limit
    refusal = f"{running} calls were given up and still run" if running >= limit else None
    yield verdict("breaker", refusal, DEFAULT_ORIGIN, f"{running} of at most {limit} calls given up and still running")


def _said(name: str, gate: Gate | None, principal: Principal, otherwise: str, origin: str) -> GateVerdict:
    if gate is None:
        return verdict(name, None, origin, otherwise)
    return verdict(name, gate.refusal(principal), gate.origin, "admits this caller")
