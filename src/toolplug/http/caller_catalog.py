"""Whose catalog: the executor of a request's caller, agent and session (CONTRACT.md section 5)."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.execution.executor import ToolExecutor
from toolplug.host.host import Host


async def executor_of(
    host: Host,
    principal: Principal,
    agent: str | None,
    session: str | None,
    toolsets: Collection[str] | None = None,
    within: Hashable = None,
) -> ToolExecutor:
    """The caller's tools; the arguments are those of `Host.executor_for`.

    Raises `AccessError` for what the caller cannot have, and for a session `StoreError`.
    """
    if session is not None:
        await host.sessions.find(session, principal.tenant)
    return host.executor_for(principal, agent=agent, session=session, toolsets=toolsets, within=within)


async def catalog_of(
    host: Host,
    principal: Principal,
    agent: str | None,
    session: str | None,
    toolsets: Collection[str] | None = None,
    within: Hashable = None,
) -> Catalog:
    """What the caller's executor lists, once every toolset that it needs is open. Raises like `executor_of`."""
    if session is not None:
        await host.sessions.find(session, principal.tenant)
    return await host.catalog_for(principal, agent=agent, session=session, toolsets=toolsets, within=within)
