"""Gates: the rules about who may see or call a tool."""

from __future__ import annotations

from collections.abc import Callable
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


class ShownGate(NamedTuple):
    """Hides the tool from those to whom it is not shown, such as those whose own list does not have it."""

    shows: Callable[[Principal], bool]
    otherwise: str
    origin: str

    name = "shown"
    hides = True

    def refusal(self, principal: Principal) -> str | None:
        return None if self.shows(principal) else self.otherwise


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


Gate = TenantsGate | ShownGate | PolicyGate | ScopeGate
"""A rule about who may see or call a tool."""
