"""The plans of session tools: what stands around a call that goes to an application elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import (
    AbandonedCallLimit,
    Approval,
    Artifacts,
    CallRunner,
    Gate,
    Plan,
    Replay,
    Setting,
    Switch,
    Target,
    Tool,
)
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.policies import CurrentHooks, Hooks, Policy, PolicyGate
from toolplug.execution.resolved_limits import DEFAULT_ORIGIN, NO_LIMITS, LimitLevel, Limits, resolve_limits
from toolplug.sessions.session_tool import KIND, SOURCE

DEADLINE_S = 30.0
LONGEST_S = 300.0
"""How long a request may wait for its answer: where its caller says nothing, and at most (CONTRACT.md section 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPolicy:
    """What holds for every session tool; `origin` is the line that says so. Asking needs approvals."""

    policy: Policy = "allow"
    origin: str = DEFAULT_ORIGIN


ALLOWED = SessionPolicy()


def _default_origin(_knob: str) -> str:
    return DEFAULT_ORIGIN


class Planner:
    """Makes the tools of sessions out of their definitions.

    Where it `hides` them, no session lists any. `limits` are the host's for every tool, `limits_origin` the line of
    each of its knobs; `hooks` gives the host-wide ones as they are at a call.
    """

    def __init__(
        self,
        accounting: CallAccounting,
        runner: CallRunner,
        *,
        replay: Replay | None = None,
        approvals: Approval | None = None,
        artifacts: Artifacts | None = None,
        hooks: Hooks = tuple,
        limits: Limits = NO_LIMITS,
        limits_origin: Callable[[str], str] = _default_origin,
        policy: SessionPolicy = ALLOWED,
    ) -> None:
        self.accounting: CallAccounting = accounting
        self.hides: bool = policy.policy == "disable"
        self._runner = runner
        self._replay = replay
        self._approval = approvals if policy.policy == "ask" else None
        self._artifacts = artifacts
        self._observers = (CurrentHooks(hooks),)
        self._gates: tuple[Gate, ...] = (PolicyGate(policy.origin),) if policy.policy == "deny" else ()
        self._policy = Setting("policy", policy.policy, policy.origin)
        layers = (LimitLevel((), limits, limits_origin), LimitLevel((KIND, SOURCE), NO_LIMITS, _default_origin))
        self._once, self._repeatable = (
            resolve_limits(layers, accounting, wished_timeout_s=DEADLINE_S, blocking=False, repeatable=repeatable)
            for repeatable in (False, True)
        )

    def tool(self, definition: ToolDefinition, target: Target, switch: Switch, abandoned: AbandonedCallLimit) -> Tool:
        """The tool of one session whose relay is the target."""
        hints = definition.hints
        held = self._repeatable if hints.read_only or hints.idempotent else self._once
        plan = Plan(
            ref=definition.ref,
            target=target,
            schema=definition.parameters,
            switch=switch,
            counters=self.accounting.counters(SOURCE, SOURCE),
            abandoned=abandoned,
            runner=self._runner,
            timeout_s=held.timeout_s,
            longest_s=max(LONGEST_S, held.timeout_s),
            max_result_bytes=held.max_result_bytes,
            gates=self._gates,
            limiters=held.limiters,
            retry=held.retry,
            approval=self._approval,
            replay=self._replay,
            artifacts=self._artifacts if held.artifacts else None,
            observers=self._observers,
            settings=(self._policy, *held.settings),
        )
        return Tool(definition, plan)
