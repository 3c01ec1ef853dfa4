"""Access to tools as data: gates that hide a tool from a principal, or list it and refuse its calls.

`hides`: the tool is not in the principal's catalog, and a call of it is answered as for an unknown tool. `origin` is
the line or default that made the gate; `refusal` returns why the principal may not call the tool, None if it may.
"""

from __future__ import annotations

from typing import NamedTuple

from toolplug.catalog.call import Principal


class TenantsGate(NamedTuple):
    """Hides the tool from all other tenants: `tools: {name: {tenants: […]}}`."""

    tenants: frozenset[str]
    origin: str

    name = "tenants"
    hides = True

    def refusal(self, principal: Principal) -> str | None:
        return None if principal.tenant in self.tenants else f"tenant {principal.tenant!r} is not among its tenants"


class PolicyGate(NamedTuple):
    """Lists the tool and refuses every call: `policy: deny`."""

    origin: str

    name = "policy"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return "its policy is deny"


class ScopeGate(NamedTuple):
    """Lists the tool and refuses calls of principals without this scope."""

    scope: str
    origin: str

    name = "scope"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return None if principal.has_scope(self.scope) else f"the scope {self.scope!r} is missing"


Gate = TenantsGate | PolicyGate | ScopeGate
"""A rule about who may see or call a tool."""
