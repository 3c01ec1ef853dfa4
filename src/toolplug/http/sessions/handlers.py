"""What a plugin lends: the whole set at once, or a change of it."""

from __future__ import annotations

import asyncio
import re
from hashlib import sha256

import orjson
from starlette.responses import Response

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.errors import SessionRefused
from toolplug.execution.accounting import audit, timestamp
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.http.json_body import OrjsonResponse, read_json
from toolplug.http.requests import HostRequest, has_version, query_fields
from toolplug.http.sessions.models import CreateBody, RegisterBody, ResultBody, SessionCallBody, UpdateBody
from toolplug.http.tools import call_answer, call_id, call_response, deadline, idempotency_key, too_many_waiting
from toolplug.sessions.negotiation import Registration, ToolChanges
from toolplug.sessions.plans import DEADLINE_S
from toolplug.sessions.record import shown
from toolplug.sessions.session import Session
from toolplug.sessions.shared import HEARTBEAT_S, SessionLimits


async def session_of(request: HostRequest) -> Session:
    """The session in the path, for its plugin or for a caller of its tenant. Raises `AccessError`, `StoreError`."""
    state = request.state
    if state["session"] is not None:
        return state["session"]
    return await state["host"].sessions.find(request.path_params["code"], state["principal"].tenant)


API_VERSION = "2.0.0"

_SPOKEN = re.compile(r"\*|[\^~]?v?2(?:\.(?:0|x|\*)){0,2}")
_POSITION = re.compile(r"[0-9]{1,18}")
_PRIVATE = {"cache-control": "private, no-cache", "vary": "authorization, x-api-key, accept-version"}


async def list_sessions(request: HostRequest) -> Response:
    """Answer the live sessions of the caller's tenant."""
    state = request.state
    tenant = state["principal"].tenant
    shown = [_summary(session) for session in state["host"].sessions.live if session.tenant == tenant]
    return OrjsonResponse({"sessions": shown}, 200, _PRIVATE)


async def session_metadata(request: HostRequest) -> Response:
    """Answer what the session offers now, or 304 to a client that knows. Raises `HttpProblem`."""
    _check_version(request.headers.get("accept-version"))
    session = await session_of(request)
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
    etag = f'W/"{state.revision}-{sha256(head).hexdigest()[:16]}"'
    headers = {"etag": etag, **_PRIVATE}
    if has_version(request, etag):
        return Response(status_code=304, headers=headers)
    body = head[:-1] + b',"expiresAt":"%s"}' % timestamp(session.expires_at).encode()
    return OrjsonResponse(body, 200, headers)


async def session_events(request: HostRequest) -> Response:
    """Answer the session's log after a position. Raises `HttpProblem`."""
    given = query_fields(request).get("after")
    if given is not None and not _POSITION.fullmatch(given):
        raise invalid_request("'after' should be the id of an event, a whole number", "after")
    session = await session_of(request)
    after = None if given is None else int(given)
    page = await session.log_page(after)
    resync = page is None
    events, position = page or await session.log_page(None) or ((), 0)
    answer = {"events": [event._asdict() for event in events], "position": position, "resync": resync}
    return OrjsonResponse(answer, 200, _PRIVATE)


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


_NO_STORE = {"cache-control": "no-store"}


async def call_in_session(request: HostRequest) -> Response:
    """Run one call with the session's catalog, or take it and answer at once. Raises `HttpProblem`."""
    state = request.state
    key = idempotency_key(request)
    body = await read_json(request, SessionCallBody)
    session = await session_of(request)
    executor = state["host"].executor_for(state["principal"], agent=body.agent, session=session.code)
    context = CallContext(
        principal=state["principal"],
        session=session.code,
        agent=body.agent,
        deadline=deadline(body.timeout_ms),
        idempotency_key=key,
        approval=body.approval,
        request_id=state["request_id"],
    )
    call = ToolCall(call_id(body.id, context), body.tool, body.arguments)
    if body.wait:
        return await call_response(request, executor, call, context, too_many_waiting)
    if key is not None:
        message = "a call that is not waited for has no Idempotency-Key; leave the header out, or wait"
        raise invalid_request(message, "Idempotency-Key")
    if context.deadline is None:
        context = context._replace(deadline=asyncio.get_running_loop().time() + DEADLINE_S)
    taken = await state["host"].queued.start(
        session, call, context, most=state["host"].sessions.limits.max_waiting_calls
    )
    return OrjsonResponse({"id": taken, "status": "queued"}, 202)


async def session_call(request: HostRequest) -> Response:
    """Answer how far a call is that nobody waited for, and its result when it is done. Raises `SessionRefused`."""
    session = await session_of(request)
    found = await request.state["host"].queued.look(session, request.path_params["id"])
    answer: dict[str, object] = {"id": found.id, "call_id": found.call_id, "status": found.status}
    if found.result is not None:
        answer["result"] = orjson.Fragment(call_answer(found.result))
    return OrjsonResponse(answer, 200, _NO_STORE)


async def create_session(request: HostRequest) -> Response:
    """Create a session of the caller's tenant; no other response contains its token."""
    state = request.state
    body = await read_json(request, CreateBody, empty=b"{}")
    session, token = await state["host"].sessions.create(
        state["principal"], plugin_type=body.plugin_type or "", ttl_s=body.ttl_seconds, request_id=state["request_id"]
    )
    place = f"{_origin(request)}/api/sessions/{session.code}"
    answer = {
        "code": session.code,
        "pluginToken": token,
        "ttl": seconds(session.state.ttl_s),
        "expiresAt": timestamp(session.expires_at),
        "streamUrl": f"{place}/stream",
        "mcpUrl": f"{place}/mcp",
    }
    return OrjsonResponse(answer, 201, _NO_STORE)


async def end_session(request: HostRequest) -> Response:
    """End a session of the caller's tenant: its streams close and its tools are gone."""
    state = request.state
    session = await session_of(request)
    await state["host"].sessions.end(session, state["principal"], request_id=state["request_id"])
    return Response(status_code=204)


async def heartbeat(request: HostRequest) -> Response:
    """A sign of the plugin's life, which a restart remembers."""
    session = await session_of(request)
    answer = {"success": True, "expiresAt": timestamp(await session.heartbeat())}
    return OrjsonResponse(answer)


def seconds(given: float) -> float:
    """A number of seconds without a needless fraction."""
    whole = int(given)
    return whole if whole == given else given


def _origin(request: HostRequest) -> str:
    """Where the client has reached us, with the prefix under which the application is mounted."""
    scope = request.scope
    return f"{scope['scheme']}://{request.headers['host']}{scope.get('root_path', '')}"


async def answer_request(request: HostRequest) -> Response:
    """Pass the answer on to the caller who waits for it. Raises `HttpProblem` and `SessionRefused`."""
    body = await read_json(request, ResultBody)
    session = await session_of(request)
    session.touch()
    if body.progress is not None:
        session.relay.progress(body.id, body.progress, body.total, body.message)
        return OrjsonResponse({"success": True, "id": body.id, "status": "progress"})
        return None
    session.relay.answer(body.id, _value(body))
    return OrjsonResponse({"success": True, "id": body.id, "status": "done"})


def _value(body: ResultBody) -> object:
    """The result itself, which may be null, or a result that says what went wrong."""
    if body.error is None:
        return body.result
    text = body.error if isinstance(body.error, str) else body.error.message
    return ToolResult(output=text, status=ToolStatus.TOOL_ERROR)


MAX_BODY = 8 * 1024 * 1024

_REVISION = re.compile(r'([0-9]{1,18})|(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]{16})?"')
"""A revision, quoted or not, or the ETag of metadata, which begins with one."""

_DONE = "done"


async def register_tools(request: HostRequest) -> Response:
    """Take the plugin's tools in place of those before. Raises `HttpProblem` and `SessionRefused`."""
    body = await read_json(request, RegisterBody)
    session = await session_of(request)
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
        _note(request, session, "register", error.code)
        raise
    _note(request, session, "register", _DONE)
    failed = [
        {"toolName": tool.name, "error": tool.error, "recoverable": tool.recoverable} for tool in registered.failed
    ]
    answer = {
        "success": True,
        "registeredTools": registered.names,
        "failedTools": failed,
        "sessionConfiguration": _configuration(session, request.state["host"].sessions.limits),
        "revision": registered.revision,
    }
    return OrjsonResponse(answer, 201)


async def update_tools(request: HostRequest) -> Response:
    """Change a part of the plugin's tools, all of it or nothing. Raises `HttpProblem` and `SessionRefused`."""
    expected = _expected(request.headers.get("if-match"))
    body = await read_json(request, UpdateBody)
    session = await session_of(request)
    updates = body.tool_updates
    asked = ToolChanges(added=updates.added, removed=updates.removed, modified=updates.modified)
    try:
        updated = await session.update(asked, body.reason, expected)
    except SessionRefused as error:
        _note(request, session, "update", error.code)
        raise
    _note(request, session, "update", _DONE)
    answer = {"success": True, "revision": updated.revision, "updates": orjson.Fragment(updated.difference.wire())}
    return OrjsonResponse(answer)


def _note(request: HostRequest, session: Session, kind: str, outcome: str) -> None:
    """One audit line and one count for each change and for each that was refused, so that the two agree."""
    state = request.state
    state["host"].sessions.counters.changes[(kind, outcome)] += 1
    audit(f"session.{kind}", outcome, state["principal"], shown(session.code), state["request_id"])


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


def _expected(condition: str | None) -> int | None:
    """The revision in `If-Match`; None where any will do. Raises `HttpProblem`."""
    if condition is None or condition.strip() == "*":
        return None
    found = _REVISION.fullmatch(condition.strip())
    if found is None:
        raise invalid_request("If-Match should be one revision, such as 3, or the ETag of the metadata", "If-Match")
    return int(found[1] or found[2])
