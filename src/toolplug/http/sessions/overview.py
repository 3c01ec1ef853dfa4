"""What there is to see of sessions: all of a tenant's, one with its tools, and one's log."""

from __future__ import annotations

import re
from hashlib import sha256

import orjson

from toolplug.execution.timestamp import timestamp
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.if_none_match import has_version
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.http.sessions.found import session_of
from toolplug.sessions.session import Session

API_VERSION = "2.0.0"

_SPOKEN = re.compile(r"\*|[\^~]?v?2(?:\.(?:0|x|\*)){0,2}")
_POSITION = re.compile(r"[0-9]{1,18}")
_PRIVATE = ((b"cache-control", b"private, no-cache"), (b"vary", b"authorization, x-api-key, accept-version"))


async def list_sessions(host: Host, exchange: Exchange) -> None:
    """Answer the live sessions of the caller's tenant."""
    tenant = exchange.principal.tenant
    shown = [_summary(session) for session in host.sessions.live if session.tenant == tenant]
    await exchange.answer(200, orjson.dumps({"sessions": shown}), headers=_PRIVATE)


async def session_metadata(host: Host, exchange: Exchange) -> None:
    """Answer what the session offers now, or 304 to a client that knows. Raises `HttpProblem`."""
    _check_version(exchange.header(b"accept-version"))
    session = await session_of(host, exchange)
    state = session.state
    lasting = {
        "apiVersion": API_VERSION,
        "sessionId": session.code,
        "pluginType": state.plugin_type,
        "pluginStatus": session.plugin_status,
        "capabilities": [item._asdict() for item in state.capabilities],
        "tools": orjson.Fragment(session.tools_wire()),
        "environment": dict(state.environment),
        "toolCount": len(state.tools) if state.registered else len(session.executor.catalog),
        "revision": state.revision,
        "registered": state.registered,
        "lastUpdated": timestamp(state.updated_at),
    }
    head = orjson.dumps(lasting)
    etag = b'W/"%d-%s"' % (state.revision, sha256(head).hexdigest()[:16].encode())
    headers = [(b"etag", etag), *_PRIVATE]
    if has_version(exchange.headers.get(b"if-none-match"), etag.removeprefix(b"W/")):
        await exchange.answer_unchanged(headers)
        return
    body = head[:-1] + b',"expiresAt":"%s"}' % timestamp(session.expires_at).encode()
    await exchange.answer(200, body, headers=headers)


async def session_events(host: Host, exchange: Exchange) -> None:
    """Answer the session's log after a position. Raises `HttpProblem`."""
    given = exchange.query().get("after")
    if given is not None and not _POSITION.fullmatch(given):
        raise invalid_request("'after' should be the id of an event, a whole number", "after")
    session = await session_of(host, exchange)
    after = None if given is None else int(given)
    page = await session.log_page(after)
    resync = page is None
    events, position = page or await session.log_page(None) or ((), 0)
    answer = {"events": [event._asdict() for event in events], "position": position, "resync": resync}
    await exchange.answer(200, orjson.dumps(answer), headers=_PRIVATE)


def _summary(session: Session) -> dict[str, object]:
    state = session.state
    return {
        "code": session.code,
        "pluginType": state.plugin_type,
        "capabilities": [item._asdict() for item in state.capabilities],
        "registered": state.registered,
        "toolCount": len(state.tools),
        "pluginStatus": session.plugin_status,
        "revision": state.revision,
        "streams": len(session.feed.readers),
        "expiresAt": timestamp(session.expires_at),
    }


def _check_version(accepted: str | None) -> None:
    if accepted is None or any(_SPOKEN.fullmatch(item.strip()) for item in accepted.split(",")):
        return
    message = f"version {accepted[:40]!r} is not spoken here; send Accept-Version: {API_VERSION}, or none"
    raise HttpProblem(406, "unsupported_version", message, param="Accept-Version")
