"""The executor and the catalog of a request's caller, agent and session (CONTRACT.md section 5, *Whose catalog*)."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.execution.live import ToolExecutor
from toolplug.host.host import Host
from toolplug.http.requests import HostRequest, query_fields


async def requested_session(request: HostRequest) -> str | None:
    """The code of the session that the query names, once found; None without. Raises `AccessError`, `StoreError`."""
    session = query_fields(request).get("session") or None
    if session is not None:
        state = request.state
        await state["host"].sessions.find(session, state["principal"].tenant)
    return session


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
