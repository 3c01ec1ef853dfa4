"""What an operator says of one tool: its policy, its limits, and who may see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolplug.catalog.plan import Gate
from toolplug.execution.gates import PolicyGate, TenantsGate
from toolplug.execution.knobs import NO_LIMITS, Limits

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
