"""Sessions come and go: created and ended by callers, kept alive by their plugins."""

from __future__ import annotations

import orjson

from toolplug.execution.timestamp import timestamp
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.sessions.found import session_of
from toolplug.http.sessions.models import CreateBody

_NO_STORE = ((b"cache-control", b"no-store"),)


async def create_session(host: Host, exchange: Exchange) -> None:
    """Make a session of the caller's tenant; the answer is the only place where its token stands."""
    body = await read_json(exchange, CreateBody, empty=b"{}")
    session, token = await host.sessions.create(
        exchange.principal,
        plugin_type=body.plugin_type or "",
        ttl_s=body.ttl_seconds,
        request_id=exchange.request_id,
    )
    place = f"{_origin(exchange)}/api/sessions/{session.code}"
    answer = {
        "code": session.code,
        "pluginToken": token,
        "ttl": seconds(session.state.ttl_s),
        "expiresAt": timestamp(session.expires_at),
        "streamUrl": f"{place}/stream",
        "mcpUrl": f"{place}/mcp",
    }
    await exchange.answer(201, orjson.dumps(answer), headers=_NO_STORE)


async def end_session(host: Host, exchange: Exchange) -> None:
    """End a session of the caller's tenant: its streams close and its tools are gone."""
    session = await session_of(host, exchange)
    await host.sessions.end(session, exchange.principal, request_id=exchange.request_id)
    await exchange.answer_done()


async def heartbeat(host: Host, exchange: Exchange) -> None:
    """A sign of the plugin's life, which a restart remembers."""
    session = await session_of(host, exchange)
    answer = {"success": True, "expiresAt": timestamp(await session.heartbeat())}
    await exchange.answer(200, orjson.dumps(answer))


def seconds(given: float) -> float:
    """A number of seconds without a needless fraction."""
    whole = int(given)
    return whole if whole == given else given


def _origin(exchange: Exchange) -> str:
    """Where the client has reached us, with the prefix under which the application is mounted."""
    scope = exchange.scope
    return f"{scope['scheme']}://{exchange.header(b'host')}{scope.get('root_path', '')}"
