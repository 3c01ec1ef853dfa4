"""Whose saved toolsets a request is about."""

from __future__ import annotations

import orjson

from toolplug.host.host import Host
from toolplug.http.asked_session import asked_session
from toolplug.http.exchange import Exchange
from toolplug.toolsets.saved.owner import Caller
from toolplug.toolsets.saved.shown import ShownToolset

PRIVATE = ((b"cache-control", b"private, no-cache"),)


async def asking(host: Host, exchange: Exchange) -> Caller:
    """Who asks, through the agent and the session of the query. Raises `AccessError` and `StoreError`."""
    session = await asked_session(host, exchange)
    return Caller(exchange.principal, exchange.query().get("agent") or None, session, exchange.request_id)


async def answer_toolset(exchange: Exchange, shown: ShownToolset, *, status: int = 200) -> None:
    """Answer one toolset."""
    await exchange.answer(status, orjson.dumps(shown.fields()), headers=PRIVATE)
