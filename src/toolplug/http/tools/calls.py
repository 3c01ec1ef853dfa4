"""`POST /v1/tool-calls`: one call, answered with 200 however the tool ends."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from secrets import token_hex

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult
from toolplug.execution.executor import ToolExecutor
from toolplug.host.host import Host
from toolplug.http.caller_catalog import executor_of
from toolplug.http.client_watch import ClientWatch
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.http.tools.answer import call_answer, is_replay, replay_problem
from toolplug.http.tools.progress_stream import ProgressStream
from toolplug.http.tools.stub_options import checked_options
from toolplug.http.wire_models import CallBody

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_REPLAYED = ((b"idempotent-replayed", b"true"),)
_EVENTS = b"text/event-stream"

Problem = Callable[[ToolResult, CallContext], HttpProblem | None]
"""Why the request itself cannot be honoured, where a result says so."""


async def call_tool(host: Host, exchange: Exchange) -> None:
    """Run one call; it is cancelled when its client hangs up. Raises `HttpProblem` and `AccessError`."""
    key = idempotency_key(exchange)
    body = await read_json(exchange, CallBody)
    executor = await executor_of(host, exchange.principal, body.agent, body.session, body.toolsets)
    context = CallContext(
        principal=exchange.principal,
        session=body.session,
        agent=body.agent,
        deadline=deadline(body.timeoutMs),
        idempotency_key=key,
        approval=body.approval,
        options=checked_options(executor, body.name, body.options) if body.options else EMPTY,
        trace=exchange.request_id,
    )
    await answer_call(exchange, executor, ToolCall(call_id(body.id, context), body.name, body.arguments), context)


async def answer_call(
    exchange: Exchange, executor: ToolExecutor, call: ToolCall, context: CallContext, problem: Problem = replay_problem
) -> None:
    """Answer with the call's result, or stream its progress and then the result.

    Raises `HttpProblem` for a result that `problem` takes for one of the request.
    """
    answer = _streamed if _EVENTS in exchange.headers.get(b"accept", b"") else _answered
    with ClientWatch(exchange.receive):
        await answer(exchange, executor, call, context, problem)


def call_id(given: str | None, context: CallContext) -> str:
    """The client's own id of a call, or a new one.

    A caller's calls under one idempotency key have the same: a repetition gets the first answer to the letter.
    """
    if given or context.idempotency_key is None:
        return given or f"call_{token_hex(8)}"
    owner = ascii((context.principal.tenant, context.principal.subject, context.idempotency_key))
    return f"call_{hashlib.sha256(owner.encode()).hexdigest()[:16]}"


def deadline(timeout_ms: int | None) -> float | None:
    """When a call must have ended, as loop time."""
    return None if timeout_ms is None else asyncio.get_running_loop().time() + timeout_ms / 1000


def idempotency_key(exchange: Exchange) -> str | None:
    """The key under which the call runs once. Raises `HttpProblem` for a header that is none."""
    key = exchange.header(b"idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise invalid_request("Idempotency-Key should be 1 to 255 visible ASCII characters", "Idempotency-Key")
    return key


async def _answered(
    exchange: Exchange, executor: ToolExecutor, call: ToolCall, context: CallContext, problem: Problem
) -> None:
    result = await executor.execute(call, context)
    _check(problem(result, context))
    await exchange.answer(200, call_answer(result), headers=_REPLAYED if is_replay(result) else ())


async def _streamed(
    exchange: Exchange, executor: ToolExecutor, call: ToolCall, context: CallContext, problem: Problem
) -> None:
    stream = ProgressStream(exchange, call.id)
    result = await stream.result(lambda: executor.execute(call, context._replace(report=stream.report)))
    if not exchange.started:
        _check(problem(result, context))
    await stream.end(call_answer(result), _REPLAYED if is_replay(result) else ())


def _check(problem: HttpProblem | None) -> None:
    if problem is not None:
        raise problem
