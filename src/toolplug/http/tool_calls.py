"""`POST /v1/tool-calls`: one call, answered with 200 however the tool ends."""

from __future__ import annotations

import asyncio
import re
from secrets import token_hex

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult
from toolplug.execution.executor import ToolExecutor
from toolplug.host.host import Host
from toolplug.http.call_answer import call_answer, is_replay, replay_problem
from toolplug.http.call_body import read_call
from toolplug.http.caller_catalog import executor_of
from toolplug.http.client_watch import ClientWatch
from toolplug.http.doors.body import read_body
from toolplug.http.exchange import JSON, Exchange
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.http.progress_stream import ProgressStream
from toolplug.http.stub_options import checked_options

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_REPLAYED = ((b"idempotent-replayed", b"true"),)
_EVENTS = b"text/event-stream"


async def call_tool(host: Host, exchange: Exchange) -> None:
    """Run one call; it is cancelled when its client hangs up. Raises `HttpProblem` for a request that is none."""
    _check_content_type(exchange)
    key = _idempotency_key(exchange)
    body = read_call(await read_body(exchange.receive, exchange.max_body))
    executor = executor_of(host, exchange.principal, body.agent, body.session)
    call = ToolCall(body.id or f"call_{token_hex(8)}", body.name, body.arguments)
    context = CallContext(
        principal=exchange.principal,
        session=body.session,
        agent=body.agent,
        deadline=None if body.timeoutMs is None else asyncio.get_running_loop().time() + body.timeoutMs / 1000,
        idempotency_key=key,
        approval=body.approval,
        options=checked_options(executor, body.name, body.options) if body.options else EMPTY,
        trace=exchange.request_id,
    )
    answer = _streamed if _EVENTS in exchange.headers.get(b"accept", b"") else _answered
    with ClientWatch(exchange.receive):
        await answer(exchange, executor, call, context)


async def _answered(exchange: Exchange, executor: ToolExecutor, call: ToolCall, context: CallContext) -> None:
    result = await executor.execute(call, context)
    _check_replay(result, context)
    await exchange.answer(200, call_answer(result), headers=_REPLAYED if is_replay(result) else ())


async def _streamed(exchange: Exchange, executor: ToolExecutor, call: ToolCall, context: CallContext) -> None:
    stream = ProgressStream(exchange, call.id)
    result = await stream.result(lambda: executor.execute(call, context._replace(report=stream.report)))
    if not exchange.started:
        _check_replay(result, context)
    await stream.end(call_answer(result), _REPLAYED if is_replay(result) else ())


def _check_replay(result: ToolResult, context: CallContext) -> None:
    problem = replay_problem(result) if context.idempotency_key is not None else None
    if problem is not None:
        raise problem


def _check_content_type(exchange: Exchange) -> None:
    given = exchange.headers.get(b"content-type")
    if given is not None and given.partition(b";")[0].strip().lower() != JSON:
        message = "the body is read as JSON only; send Content-Type: application/json"
        raise HttpProblem(415, "unsupported_media_type", message, param="Content-Type")


def _idempotency_key(exchange: Exchange) -> str | None:
    key = exchange.header(b"idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise invalid_request("Idempotency-Key should be 1 to 255 visible ASCII characters", "Idempotency-Key")
    return key
