"""Whose catalog: the executor of a request's caller, agent and session (CONTRACT.md section 5)."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from contextvars import Token

from toolplug.catalog.call import Frame, Principal, current_frame
from toolplug.catalog.catalog import Catalog
from toolplug.execution.live import ToolExecutor
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange


def enter_tenant(exchange: Exchange) -> Token[Frame]:
    """From here on `current_tenant()` is the caller's.

    `leave_tenant` must follow: a test client, or an application around ours, has the same context.
    """
    return current_frame.set((exchange.principal.tenant, current_frame.get()[1]))


def leave_tenant(token: Token[Frame]) -> None:
    """The request has been served."""
    current_frame.reset(token)


def state_of(exchange: Exchange) -> dict[str, object]:
    """What a handler finds in `request.state`; a new mapping, since a server may give many requests the same one."""
    principal = exchange.principal
    return {
        **exchange.scope.get("state", {}),
        "tenant": principal.tenant,
        "principal": principal,
        "request_id": exchange.request_id,
    }


async def asked_session(host: Host, exchange: Exchange) -> str | None:
    """Its code, once it was found; None where the query names none. Raises `AccessError` and `StoreError`."""
    session = exchange.query().get("session") or None
    if session is not None:
        await host.sessions.find(session, exchange.principal.tenant)
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
