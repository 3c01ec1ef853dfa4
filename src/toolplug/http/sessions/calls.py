"""Calls through a session: waited for, or looked up later."""

from __future__ import annotations

import asyncio

import orjson

from toolplug.catalog.call import CallContext, ToolCall
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import invalid_request
from toolplug.http.sessions.found import session_of
from toolplug.http.sessions.models import SessionCallBody
from toolplug.http.tools.answer import call_answer, crowd_problem
from toolplug.http.tools.calls import answer_call, call_id, deadline, idempotency_key
from toolplug.sessions.plans import DEADLINE_S

_NO_STORE = ((b"cache-control", b"no-store"),)


async def call_in_session(host: Host, exchange: Exchange) -> None:
    """Run one call with the session's catalog, or take it and answer at once. Raises `HttpProblem`."""
    key = idempotency_key(exchange)
    body = await read_json(exchange, SessionCallBody)
    session = await session_of(host, exchange)
    executor = host.executor_for(exchange.principal, agent=body.agent, session=session.code)
    context = CallContext(
        principal=exchange.principal,
        session=session.code,
        agent=body.agent,
        deadline=deadline(body.timeout_ms),
        idempotency_key=key,
        approval=body.approval,
        trace=exchange.request_id,
    )
    call = ToolCall(call_id(body.id, context), body.tool, body.arguments)
    if body.wait:
        await answer_call(exchange, executor, call, context, crowd_problem)
        return
    if key is not None:
        message = "a call that is not waited for has no Idempotency-Key; leave the header out, or wait"
        raise invalid_request(message, "Idempotency-Key")
    if context.deadline is None:
        context = context._replace(deadline=asyncio.get_running_loop().time() + DEADLINE_S)
    taken = await host.queued.start(session, call, context, most=host.sessions.limits.max_waiting_calls)
    await exchange.answer(202, orjson.dumps({"id": taken, "status": "queued"}))


async def session_call(host: Host, exchange: Exchange) -> None:
    """Answer how far a call is that nobody waited for, and its result when it is done. Raises `SessionRefused`."""
    session = await session_of(host, exchange)
    found = await host.queued.look(session, exchange.params["id"])
    answer: dict[str, object] = {"id": found.id, "call_id": found.call_id, "status": found.status}
    if found.result is not None:
        answer["result"] = orjson.Fragment(call_answer(found.result))
    await exchange.answer(200, orjson.dumps(answer), headers=_NO_STORE)
