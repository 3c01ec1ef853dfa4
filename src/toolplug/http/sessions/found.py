"""The session that a request is about."""

from __future__ import annotations

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.sessions.session import Session


async def session_of(host: Host, exchange: Exchange) -> Session:
    """The session in the path, for its plugin or for a caller of its tenant. Raises `AccessError`, `StoreError`."""
    if exchange.session is not None:
        return exchange.session
    return await host.sessions.find(exchange.params["code"], exchange.principal.tenant)
