"""Calls with a session's catalog, and what its plugin sends: the answers to requests, and signs of life."""

from __future__ import annotations

import asyncio
from typing import cast

import orjson
from starlette.responses import Response

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.config.units import timestamp
from toolplug.execution.results import call_answer
from toolplug.http.bodies.request_body import OrjsonResponse, read_json
from toolplug.http.errors import invalid_request
from toolplug.http.requests import (
    HostRequest,
    credential_scope,
    passed_credentials,
    passed_trace_context,
    without_authentication,
)
from toolplug.http.routing import CALL, IDEMPOTENCY_KEY, JSON_OR_EVENTS, READ, answers, route
from toolplug.http.tools import CallAnswer, call_id, call_response, deadline, idempotency_key, too_many_waiting
from toolplug.parts.sessions.http import models
from toolplug.parts.sessions.http.handlers import NO_STORE, ONE, plugin_session, running_sessions, session_of
from toolplug.parts.sessions.peers.calls import RecordedProgress
from toolplug.parts.sessions.tools.executors import SessionRoute
from toolplug.parts.sessions.tools.session_tool import DEADLINE_S


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
