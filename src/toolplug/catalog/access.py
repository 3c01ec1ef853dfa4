"""Access to tools as data: gates that hide a tool from a principal, or list it and refuse its calls.

A gate with `hides` keeps the tool out of the principal's catalog; calls of it are answered as for an unknown tool.
"""

from __future__ import annotations

from typing import NamedTuple

from toolplug.catalog.call import Principal


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
