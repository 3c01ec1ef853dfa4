"""Whose saved toolsets a request is about."""

from __future__ import annotations

import orjson

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.toolsets.saved.owner import Caller
from toolplug.toolsets.saved.shown import ShownToolset

PRIVATE = ((b"cache-control", b"private, no-cache"),)


async def asking(host: Host, exchange: Exchange) -> Caller:
    """Who asks, through the agent and the session of the query. Raises `AccessError` and `StoreError`."""
    query = exchange.query()
    session = query.get("session") or None
    if session is not None:
        await host.sessions.find(session, exchange.principal.tenant)
    return Caller(exchange.principal, query.get("agent") or None, session, exchange.request_id)


async def answer_toolset(exchange: Exchange, shown: ShownToolset, *, status: int = 200) -> None:
    """Answer one toolset."""
    await exchange.answer(status, orjson.dumps(shown.fields()), headers=PRIVATE)
