"""A session's events as they happen, for a client or for the plugin."""

from __future__ import annotations

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.sessions.event_stream import EventStream
from toolplug.http.sessions.found import session_of


async def session_stream(host: Host, exchange: Exchange) -> None:
    """Stream the events until the session, the client or its credential ends."""
    session = await session_of(host, exchange)
    if exchange.method == "HEAD":
        await exchange.begin_stream()
        await exchange.end_stream()
        return
    role = "client" if exchange.session is None else "plugin"
    reader = await session.open_stream(role, exchange.header(b"last-event-id"))
    exchange.afterwards = EventStream(exchange, session, reader).written
