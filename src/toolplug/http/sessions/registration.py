"""What a plugin lends: the whole set at once, or a change of it."""

from __future__ import annotations

import re

import orjson

from toolplug.errors import SessionRefused
from toolplug.execution.audit import audit
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import invalid_request
from toolplug.http.sessions.found import session_of
from toolplug.http.sessions.life import seconds
from toolplug.http.sessions.models import RegisterBody, UpdateBody
from toolplug.sessions.code import shown
from toolplug.sessions.limits import HEARTBEAT_S, SessionLimits
from toolplug.sessions.negotiation import Registration, ToolChanges
from toolplug.sessions.session import Session

MAX_BODY = 8 * 1024 * 1024

_REVISION = re.compile(rb'([0-9]{1,18})|(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]{16})?"')
"""A revision, quoted or not, or the ETag of metadata, which begins with one."""

_DONE = "done"


async def register_tools(host: Host, exchange: Exchange) -> None:
    """Take the plugin's tools in place of those before. Raises `HttpProblem` and `SessionRefused`."""
    body = await read_json(exchange, RegisterBody)
    session = await session_of(host, exchange)
    asked = Registration(
        plugin_type=body.plugin_type,
        tools=body.tools,
        capabilities=body.capabilities,
        environment=body.environment,
        atomic=body.atomic,
    )
    try:
        registered = await session.register(asked)
    except SessionRefused as error:
        _note(host, exchange, session, "register", error.code)
        raise
    _note(host, exchange, session, "register", _DONE)
    failed = [
        {"toolName": tool.name, "error": tool.error, "recoverable": tool.recoverable} for tool in registered.failed
    ]
    answer = {
        "success": True,
        "registeredTools": registered.names,
        "failedTools": failed,
        "sessionConfiguration": _configuration(session, host.sessions.limits),
        "revision": registered.revision,
    }
    await exchange.answer(201, orjson.dumps(answer))


async def update_tools(host: Host, exchange: Exchange) -> None:
    """Change a part of the plugin's tools, all of it or nothing. Raises `HttpProblem` and `SessionRefused`."""
    expected = _expected(exchange.headers.get(b"if-match"))
    body = await read_json(exchange, UpdateBody)
    session = await session_of(host, exchange)
    updates = body.tool_updates
    asked = ToolChanges(added=updates.added, removed=updates.removed, modified=updates.modified)
    try:
        updated = await session.update(asked, body.reason, expected)
    except SessionRefused as error:
        _note(host, exchange, session, "update", error.code)
        raise
    _note(host, exchange, session, "update", _DONE)
    answer = {
        "success": True,
        "revision": updated.revision,
        "updates": orjson.Fragment(updated.difference.wire()),
    }
    await exchange.answer(200, orjson.dumps(answer))


def _note(host: Host, exchange: Exchange, session: Session, kind: str, outcome: str) -> None:
    """One audit line and one count for each change and for each that was refused, so that the two agree."""
    host.sessions.counters.changes[(kind, outcome)] += 1
    audit(f"session.{kind}", outcome, exchange.principal, shown(session.code), exchange.request_id)


def _configuration(session: Session, limits: SessionLimits) -> dict[str, object]:
    state = session.state
    return {
        "pluginType": state.plugin_type,
        "capabilities": [item._asdict() for item in state.capabilities],
        "environment": dict(state.environment),
        "limits": {
            "maxTools": limits.max_tools,
            "maxUpdatesPerMinute": limits.max_updates_per_minute,
            "maxWaitingCalls": limits.max_waiting_calls,
        },
        "ttlSeconds": seconds(state.ttl_s),
        "graceSeconds": seconds(limits.grace_s),
        "heartbeatSeconds": seconds(HEARTBEAT_S),
    }


def _expected(condition: bytes | None) -> int | None:
    """The revision in `If-Match`; None where any will do. Raises `HttpProblem`."""
    if condition is None or condition.strip() == b"*":
        return None
    found = _REVISION.fullmatch(condition.strip())
    if found is None:
        raise invalid_request("If-Match should be one revision, such as 3, or the ETag of the metadata", "If-Match")
    return int(found[1] or found[2])
