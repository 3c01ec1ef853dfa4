"""What an operator says of one tool: its policy, its limits, and who may see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.plan import Gate, Observer
from toolplug.execution.resolved_limits import NO_LIMITS, Limits

Hooks = Callable[[], Sequence[Observer]]
"""The host-wide hooks that there are now."""


class CurrentHooks:
    """An observer that asks those that there are when a call comes."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    async def before(self, call: ToolCall, context: CallContext) -> str | None:
        for hook in self._hooks():
            reason = await hook.before(call, context)
            if reason is not None:
                return reason
        return None

    async def after(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        for hook in self._hooks():
            await hook.after(call, context, result)


CALL_SCOPE = "tools:call"


class TenantsGate(NamedTuple):
    """Only these tenants see the tool: `tools: {name: {tenants: […]}}`."""

    tenants: frozenset[str]
    origin: str

    name = "tenants"
    hides = True

    def refusal(self, principal: Principal) -> str | None:
        return None if principal.tenant in self.tenants else f"tenant {principal.tenant!r} is not among its tenants"


class PolicyGate(NamedTuple):
    """The tool is listed and refused: `policy: deny`."""

    origin: str

    name = "policy"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return "its policy is deny"


class ScopeGate(NamedTuple):
    """Only principals with this scope may call."""

    scope: str
    origin: str

    name = "scope"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return None if principal.has_scope(self.scope) else f"the scope {self.scope!r} is missing"


Policy = Literal["allow", "ask", "deny", "disable"]

DEFAULT_POLICY: Policy = "allow"


class ToolRule(BaseModel):
    """What is said of one tool under `tools:`; a bare policy is short for `{policy: …}`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)

    policy: Policy | None = None
    limits: Limits = NO_LIMITS
    tenants: Annotated[tuple[str, ...] | None, Field(strict=False, min_length=1)] = None

    def gates(self, policy: Policy, origin: Callable[[str], str]) -> tuple[Gate, ...]:
        """The gates of a tool under this rule and this policy in effect; `origin` gives the place of a key of it."""
        gates: list[Gate] = []
        if self.tenants is not None:
            gates.append(TenantsGate(frozenset(self.tenants), origin("tenants")))
        if policy == "deny":
            gates.append(PolicyGate(origin("policy")))
        return tuple(gates)


NO_RULE = ToolRule()
