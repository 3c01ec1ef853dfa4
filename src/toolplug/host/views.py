"""Whose catalog: which tools a caller sees, as an executor that follows every change (CONTRACT.md section 5)."""

from __future__ import annotations

from dataclasses import replace

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.plan import Series
from toolplug.errors import AgentNotAllowed, AgentRequired
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.gates import CALL_SCOPE, ScopeGate
from toolplug.execution.live import LiveCatalog, joined
from toolplug.providers.registry import UNKNOWN, FunctionRegistry
from toolplug.sessions.session import Session

_NO_CALLS = ScopeGate(CALL_SCOPE, "the credential")


class Views:
    """The callers' views of one registry."""

    def __init__(self, registry: FunctionRegistry) -> None:
        self._registry = registry
        self._unscoped = (EMPTY_CATALOG, EMPTY_CATALOG)

    def executor_for(self, principal: Principal, agent: str | None, session: Session | None) -> ToolExecutor:
        """The tools of this caller. Raises `AgentRequired` and `AgentNotAllowed`."""
        base = self._base(principal, acting_agent(principal, agent))
        if session is None:
            return base
        own = session.executor
        if not principal.has_scope(CALL_SCOPE):
            own = own.view(_refused)
        return joined(self._unknown(), base, own, session=session.code)

    def _base(self, principal: Principal, agent: str | None) -> LiveCatalog:
        """The tools without a session's."""
        if agent is not None:
            return LiveCatalog(self._unknown())
        if principal.has_scope(CALL_SCOPE):
            return self._registry.view(lambda catalog: catalog.visible_to(principal))
        return self._registry.view(lambda catalog: self._listed_only(catalog).visible_to(principal))

    def _unknown(self) -> Series:
        return self._registry.ledger.series(UNKNOWN, UNKNOWN)

    def _listed_only(self, catalog: Catalog) -> Catalog:
        """The catalog with every call refused, for callers without the scope to call; kept for the newest one."""
        seen, refused = self._unscoped
        if seen is not catalog:
            refused = _refused(catalog)
            self._unscoped = (catalog, refused)
        return refused


def _refused(catalog: Catalog) -> Catalog:
    return catalog.planned(lambda _, plan: replace(plan, gates=(*plan.gates, _NO_CALLS)))


def acting_agent(principal: Principal, agent: str | None) -> str | None:
    """The agent that the caller acts as, None for none; a credential of one agent implies it."""
    if principal.agents is None:
        return agent
    if agent is None:
        if len(principal.agents) == 1:
            return next(iter(principal.agents))
        raise AgentRequired(sorted(principal.agents))
    if agent not in principal.agents:
        raise AgentNotAllowed(agent)
    return agent
