"""The session that a request's query names."""

from __future__ import annotations

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange


async def asked_session(host: Host, exchange: Exchange) -> str | None:
    """Its code, once it was found; None where the query names none. Raises `AccessError` and `StoreError`."""
    session = exchange.query().get("session") or None
    if session is not None:
        await host.sessions.find(session, exchange.principal.tenant)
    return session
