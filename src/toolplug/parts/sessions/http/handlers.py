"""The routes of sessions: creating, calling and ending them, registering and updating tools, and metadata.

A plugin's answers to requests and its signs of life are here, too.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import cast

import orjson
from starlette.responses import Response

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.config.units import timestamp
from toolplug.execution.results import call_answer
from toolplug.http.auth.authentication import viewer_of
from toolplug.http.bodies.request_body import OrjsonResponse, read_json
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.http.requests import (
    HostRequest,
    base_url,
    credential_scope,
    has_version,
    passed_credentials,
    passed_trace_context,
    without_authentication,
)
from toolplug.http.routing import (
    CALL,
    IDEMPOTENCY_KEY,
    JSON_OR_EVENTS,
    NOT_MODIFIED,
    READ,
    SESSIONS,
    TENANT,
    Parameter,
    answers,
    route,
)
from toolplug.http.tools import CallAnswer, call_id, call_response, deadline, idempotency_key, too_many_waiting
from toolplug.parts.sessions.http import models
from toolplug.parts.sessions.limits import HEARTBEAT_S, MAX_BODY, SessionLimits
from toolplug.parts.sessions.peers.shared_records import RecordedProgress
from toolplug.parts.sessions.running import RunningSessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.tools.executors import SessionRoute
from toolplug.parts.sessions.tools.negotiation import Registration, ToolChanges
from toolplug.parts.sessions.tools.session_tool import DEADLINE_S, CleanedTool

_ALL = "/api/sessions"
ONE = "/api/sessions/{code}"

_IF_MATCH = Parameter("If-Match", "the revision that the session must have", place="header")
_VERSION = Parameter("Accept-Version", "the version of the answer; 2.0.0", place="header")


def running_sessions(request: HostRequest) -> RunningSessions:
    """Return the part of the host that serves the request."""
    running = request.state["host"].part(RunningSessions)
    assert running is not None, "a host whose routes these are has opened the part"
    return running


async def session_of(request: HostRequest) -> Session:
    """Return the session in the path, for its plugin or a caller of its tenant. Raises `AccessError`, `StoreError`."""
    state = request.state
    if state["session"] is not None:
        session = plugin_session(request)
        await running_sessions(request).service.fresh(session)
        return session
    return await running_sessions(request).service.find(request.path_params["code"], state["principal"].tenant)


def plugin_session(request: HostRequest) -> Session:
    """Return the session of the plugin that makes this request, as this process knows it."""
    session = request.state["session"]
    assert isinstance(session, Session), "the audience of the route is the plugin"
    return session


API_VERSION = "2.0.0"

_SPOKEN = re.compile(r"\*|[\^~]?v?2(?:\.(?:0|x|\*)){0,2}")
PRIVATE = {"cache-control": "private, no-cache", "vary": "authorization, x-api-key, accept-version"}


def _capabilities(session: Session) -> list[models.CapabilityAnswer]:
    return [
        {"type": item.type, "level": item.level, "resources": [*item.resources]} for item in session.state.capabilities
    ]


def _summary(session: Session) -> models.SessionAnswer:
    state = session.state
    return {
        "code": session.code,
        "pluginType": state.plugin_type,
        "capabilities": _capabilities(session),
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


NO_STORE = {"cache-control": "no-store"}


def seconds(given: float) -> float:
    """Return the seconds as an integer if they have no fraction."""
    whole = int(given)
    return whole if whole == given else given


_REVISION = re.compile(r'([0-9]{1,18})|(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]{16})?"')
"""A revision, quoted or not, or the ETag of metadata, which begins with one."""


def _configuration(session: Session, limits: SessionLimits) -> models.SessionConfiguration:
    state = session.state
    return {
        "pluginType": state.plugin_type,
        "capabilities": _capabilities(session),
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


def _clean(tools: Sequence[CleanedTool]) -> list[models.CleanedToolAnswer]:
    return [{"toolName": tool.name, "removed": [*tool.removed]} for tool in tools]


def _read_expected(condition: str | None) -> int | None:
    """Return the revision in `If-Match`; None if any is accepted. Raises `HttpProblem`."""
    if condition is None or condition.strip() == "*":
        return None
    found = _REVISION.fullmatch(condition.strip())
    if found is None:
        raise invalid_request("If-Match should be one revision, such as 3, or the ETag of the metadata", "If-Match")
    return int(found[1] or found[2])


@route("POST", _ALL, SESSIONS, "Create a session", models.CreateBody, body_required=False)
@answers(models.Created, status=201, errors=(429,))
async def create_session(request: HostRequest) -> OrjsonResponse[models.Created]:
    """Create a session of the caller's tenant; no other response contains its token."""
    state = request.state
    body = await read_json(request, models.CreateBody, empty=b"{}")
    session, token = await running_sessions(request).service.create(
        state["principal"], plugin_type=body.plugin_type or "", ttl_s=body.ttl_seconds, request_id=state["request_id"]
    )
    place = f"{base_url(request)}/api/sessions/{session.code}"
    answer: models.Created = {
        "code": session.code,
        "pluginToken": token,
        "ttl": seconds(session.state.ttl_s),
        "expiresAt": timestamp(session.expires_at),
        "streamUrl": f"{place}/stream",
        "mcpUrl": f"{place}/mcp",
    }
    return OrjsonResponse(answer, 201, NO_STORE)


@route("GET", _ALL, READ, "The tenant's live sessions", parameters=(TENANT,))
@answers(models.SessionList)
async def list_sessions(request: HostRequest) -> OrjsonResponse[models.SessionList]:
    """Answer the live sessions of the caller's tenant, for `admin` of another one. Raises `HttpProblem`."""
    tenant = viewer_of(request).tenant
    live = await running_sessions(request).service.list_sessions()
    shown = [_summary(session) for session in live if session.tenant == tenant]
    return OrjsonResponse({"sessions": shown}, 200, PRIVATE)


@route("GET", "/api/session-types", READ, "The kinds of applications that have lent tools", parameters=(TENANT,))
@answers(models.SessionTypeList)
async def list_session_types(request: HostRequest) -> OrjsonResponse[models.SessionTypeList]:
    """Answer the kinds of applications that this process has seen, those of all live sessions included."""
    tenant = viewer_of(request).tenant
    service = running_sessions(request).service
    # First: it loads the sessions of other processes, whose kinds are then known here.
    live = Counter(each.state.plugin_type for each in await service.list_sessions() if each.tenant == tenant)
    kinds: list[models.SessionTypeAnswer] = [
        {
            "pluginType": seen.plugin_type,
            "live": live[seen.plugin_type],
            "toolCount": seen.tool_count,
            "tools": [{"name": tool.name, "description": tool.description} for tool in seen.tools],
            "capabilities": [*seen.capabilities],
            "firstSeen": timestamp(seen.first_seen),
            "lastSeen": timestamp(seen.last_seen),
        }
        for seen in service.types.of(tenant)
    ]
    return OrjsonResponse({"sessionTypes": kinds}, 200, PRIVATE)


@route("DELETE", ONE, SESSIONS, "End a session")
@answers(status=204)
async def end_session(request: HostRequest) -> Response:
    """End a session of the caller's tenant: its streams close and its tools are gone."""
    state = request.state
    session = await session_of(request)
    await running_sessions(request).service.end(session, state["principal"], request_id=state["request_id"])
    return Response(status_code=204)


def _definitions(body: models.RegisterBody) -> Sequence[object]:
    """Return the tools, by either name. Raises `HttpProblem` for none, and for two lists that differ."""
    tools, available = body.tools, body.available_tools
    if tools is not None and available is not None and tools != available:
        raise invalid_request("'tools' and 'availableTools' are two names of one list, and differ; send one", "tools")
    tools = available if tools is None else tools
    if tools is None:
        raise invalid_request("the body lacks 'tools'", "tools")
    return tools


@route(
    "POST",
    f"{ONE}/register-tools",
    None,
    "Lend a set of tools in place of the one before",
    models.RegisterBody,
    audience="plugin",
    max_body=MAX_BODY,
)
@answers(models.RegisterAnswer, status=201, others={422: models.RefusedRegistration}, errors=(429,))
async def register_tools(request: HostRequest) -> OrjsonResponse[models.RegisterAnswer]:
    """Take the plugin's tools in place of those before. Raises `HttpProblem` and `ApiError`."""
    body = await read_json(request, models.RegisterBody)
    tools = _definitions(body)
    session = await session_of(request)
    if body.session_code is not None and body.session_code != session.code:
        raise invalid_request("'sessionCode' is not the session in the path; send that one, or none", "sessionCode")
    asked = Registration(
        plugin_type=body.plugin_type,
        tools=tools,
        capabilities=body.capabilities,
        environment=body.environment,
        atomic=body.atomic,
    )
    registered = await session.register(asked, request_id=request.state["request_id"])
    answer: models.RegisterAnswer = {
        "success": True,
        "registeredTools": [*registered.names],
        "failedTools": [tool.fields() for tool in registered.failed],
        "sessionConfiguration": _configuration(session, running_sessions(request).service.limits),
        "revision": registered.revision,
    }
    if registered.cleaned:
        answer["cleanedTools"] = _clean(registered.cleaned)
    return OrjsonResponse(answer, 201)


@route(
    "POST",
    f"{ONE}/update-tools",
    None,
    "Change a part of the set, all of it or nothing",
    models.UpdateBody,
    parameters=(_IF_MATCH,),
    audience="plugin",
    max_body=MAX_BODY,
)
@answers(models.UpdateAnswer, errors=(409, 412, 422, 429))
async def update_tools(request: HostRequest) -> OrjsonResponse[models.UpdateAnswer]:
    """Change a part of the plugin's tools, all of it or nothing. Raises `HttpProblem` and `ApiError`."""
    expected = _read_expected(request.headers.get("if-match"))
    body = await read_json(request, models.UpdateBody)
    session = await session_of(request)
    updates = body.tool_updates
    asked = ToolChanges(added=updates.added, removed=updates.removed, modified=updates.modified)
    updated = await session.update(asked, body.reason, expected, request_id=request.state["request_id"])
    answer: models.UpdateAnswer = {
        "success": True,
        "revision": updated.revision,
        "updates": cast("models.ToolUpdatesAnswer", orjson.Fragment(updated.difference.wire())),  # as its event has it
    }
    if updated.cleaned:
        answer["cleanedTools"] = _clean(updated.cleaned)
    return OrjsonResponse(answer)


@route("GET", f"{ONE}/metadata", READ, "What the session offers now", parameters=(_VERSION,), audience="either")
@answers(models.Metadata, others=NOT_MODIFIED, errors=(406,))
async def session_metadata(request: HostRequest) -> Response:
    """Answer what the session offers now, or 304 to a client that knows. Raises `HttpProblem`."""
    _check_version(request.headers.get("accept-version"))
    session = await session_of(request)
    state = session.state
    # Without the expiry, which moves with each sign of the plugin and would make every answer a new version.
    lasting = {
        "apiVersion": API_VERSION,
        "sessionId": session.code,
        "pluginType": state.plugin_type,
        "pluginStatus": session.plugin_status,
        "capabilities": _capabilities(session),
        "tools": orjson.Fragment(session.tools_wire()),
        "environment": dict(state.environment),
        "toolCount": len(state.tools) if state.registered else len(session.executor.catalog),
        "revision": state.revision,
        "registered": state.registered,
        "lastUpdated": timestamp(state.updated_at),
    }
    head = orjson.dumps(lasting)
    # Weak, since two answers under it differ in the expiry. The digest stands for what changes without a revision, such
    # as the plugin's status.
    etag = f'W/"{state.revision}-{sha256(head).hexdigest()[:16]}"'
    headers = {"etag": etag, **PRIVATE}
    if has_version(request, etag):
        return Response(status_code=304, headers=headers)
    # Appended to the encoded text: the tools are not encoded a second time.
    body = head[:-1] + b',"expiresAt":"%s"}' % timestamp(session.expires_at).encode()
    return OrjsonResponse(body, 200, headers)


def _value(body: models.ResultBody) -> object:
    """Return the result, which may be null, or a `ToolResult` for an error."""
    if body.error is None:
        return body.result
    text = body.error if isinstance(body.error, str) else body.error.message
    return ToolResult(output=text, status=ToolStatus.TOOL_ERROR)


@route(
    "POST",
    f"{ONE}/tool-calls",
    CALL,
    "Call a tool with the session's catalog",
    models.SessionCallBody,
    parameters=(IDEMPOTENCY_KEY,),
)
@answers(CallAnswer, others={202: models.QueuedAnswer}, errors=(409, 422, 429), content_types=JSON_OR_EVENTS)
async def call_in_session(request: HostRequest) -> OrjsonResponse[models.QueuedAnswer] | Response:
    """Run one call with the session's catalog, or take it and answer at once. Raises `HttpProblem`."""
    state = request.state
    key = idempotency_key(request)
    body = await read_json(request, models.SessionCallBody)
    session = await session_of(request)
    await state["host"].quotas.count_call(state["principal"])
    executor = SessionRoute(state["host"].executor_for(state["principal"], agent=body.agent, session=session.code))
    context = CallContext(
        principal=state["principal"],
        session=session.code,
        agent=body.agent,
        deadline=deadline(body.timeout_ms),
        idempotency_key=key,
        approval=body.approval,
        request_id=state["request_id"],
        credentials=passed_credentials(state["headers"]),
        trace_context=passed_trace_context(request.scope),
    )
    scope = await state["host"].scope_of(context.credentials)
    call = ToolCall(call_id(body.id, context, scope), body.tool, body.arguments)
    if body.wait:
        return await call_response(request, executor, call, context, too_many_waiting)
    if key is not None:
        message = "a call that is not waited for has no Idempotency-Key; leave the header out, or wait"
        raise invalid_request(message, "Idempotency-Key")
    if context.deadline is None:
        tool = executor.catalog.find(body.tool)
        within_s = DEADLINE_S if tool is None else tool.plan.timeout_s
        context = context._replace(deadline=asyncio.get_running_loop().time() + within_s)
    running = running_sessions(request)
    most = running.service.limits.max_waiting_calls
    # What let the request in is kept for the request only.
    context = context._replace(credentials=passed_credentials(without_authentication(state["headers"])))
    taken = await running.queued.start(session, call, context, most=most, scope=scope)
    return OrjsonResponse({"id": taken, "status": "queued"}, 202)


@route("GET", f"{ONE}/tool-calls/{{id}}", READ, "The state of a queued call")
@answers(models.CallState)
async def session_call(request: HostRequest) -> OrjsonResponse[models.CallState]:
    """Answer the state of a queued call, and its result once it is done. Raises `ApiError`."""
    session, state = await session_of(request), request.state
    queued, scope = running_sessions(request).queued, await credential_scope(request)
    found = await queued.look(session, request.path_params["id"], state["principal"], scope)
    answer: models.CallState = {"id": found.id, "call_id": found.call_id, "status": found.status}
    if found.result is not None:
        answer["result"] = cast("CallAnswer", orjson.Fragment(call_answer(found.result)))
    return OrjsonResponse(answer, 200, NO_STORE)


@route(
    "POST",
    f"{ONE}/tool-results",
    None,
    "Answer a request that the plugin was sent",
    models.ResultBody,
    audience="plugin",
)
@answers(models.ResultAnswer, errors=(409,))
async def answer_request(request: HostRequest) -> OrjsonResponse[models.ResultAnswer]:
    """Pass the answer on to the caller who waits for it. Raises `HttpProblem` and `ApiError`."""
    body = await read_json(request, models.ResultBody)
    session = plugin_session(request)
    # Also an answer that is refused below is a sign of life.
    session.touch()
    if body.progress is not None:
        await session.relay.take_progress(body.id, RecordedProgress(body.progress, body.total, body.message))
        return OrjsonResponse({"success": True, "id": body.id, "status": "progress"})
    await session.relay.take_answer(body.id, _value(body))
    return OrjsonResponse({"success": True, "id": body.id, "status": "done"})


@route("POST", f"{ONE}/heartbeat", None, "Keep the session alive", audience="plugin")
@answers(models.HeartbeatAnswer)
async def heartbeat(request: HostRequest) -> OrjsonResponse[models.HeartbeatAnswer]:
    """Extend the session's lifetime; the new expiry is stored."""
    session = plugin_session(request)
    return OrjsonResponse({"success": True, "expiresAt": timestamp(await session.heartbeat())})
