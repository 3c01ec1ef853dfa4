"""`POST /v1/tool-calls`: one call, answered with 200 however the tool ends."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from secrets import token_hex
from typing import cast, get_args

import orjson

from toolplug.catalog.call import EMPTY, CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.render import Dialect
from toolplug.errors import SessionRefused
from toolplug.execution.live import ToolExecutor
from toolplug.execution.replay import KEY_REUSED, KEY_RUNNING
from toolplug.execution.results import Reports
from toolplug.host.host import Host
from toolplug.http.caller_catalog import asked_session, catalog_of, executor_of
from toolplug.http.client_watch import ClientWatch
from toolplug.http.errors import session_refused
from toolplug.http.exchange import Exchange, has_version
from toolplug.http.json_body import read_json
from toolplug.http.problem import Headers, HttpProblem, invalid_request, store_unavailable
from toolplug.http.wire_models import CallBody
from toolplug.sessions.events import frame
from toolplug.signatures.values import encoded


async def explain(host: Host, exchange: Exchange) -> None:
    """Answer for the caller's own credential. Raises `HttpProblem`, and `AccessError` for the session."""
    query = exchange.query()
    tool = query.get("tool")
    if not tool:
        raise invalid_request("the query lacks 'tool', the name of the tool to explain", "tool")
    session = await asked_session(host, exchange)
    found = host.explain(tool, exchange.principal, agent=query.get("agent") or None, session=session)
    body = {
        "name": found.name,
        "found": found.found,
        "callable": found.callable,
        "provider": found.provider,
        "gates": [asdict(gate) for gate in found.gates],
        "settings": [setting._asdict() for setting in found.settings],
        "nearest": [item.name for item in found.nearest],
        "homes": {item.name: item.home for item in found.nearest},
    }
    await exchange.answer(200, orjson.dumps(body))


DIALECTS: tuple[str, ...] = get_args(Dialect)
DEFAULT_DIALECT = "chat"

_VARY = (b"vary", b"authorization, x-api-key")


async def list_tools(host: Host, exchange: Exchange) -> None:
    """Answer the list, or 304 to a client that has it. Raises `HttpProblem` and `AccessError`."""
    query = exchange.query()
    dialect = query.get("format", DEFAULT_DIALECT)
    if dialect not in DIALECTS:
        raise invalid_request(f"there is no format {dialect[:40]!r}; there are {', '.join(DIALECTS)}", "format")
    toolsets = [name for name in query.get("toolsets", "").split(",") if name]
    agent, session = query.get("agent") or None, query.get("session") or None
    catalog = await catalog_of(host, exchange.principal, agent, session, toolsets)
    etag = f'"{catalog.etag}-{dialect}"'.encode()
    headers = [(b"etag", etag), (b"cache-control", b"private, no-cache"), _VARY]
    if has_version(exchange.headers.get(b"if-none-match"), etag):
        await exchange.answer_unchanged(headers)
        return
    tools = catalog.render(cast("Dialect", dialect))  # a member, as was just checked
    await exchange.answer(200, b'{"tools":' + tools + b"}", headers=headers)


def checked_options(executor: ToolExecutor, name: str, options: Mapping[str, object]) -> Mapping[str, object]:
    """The options, which the tool takes. Raises `HttpProblem` otherwise; a tool that is not listed is not told on."""
    tool = executor.catalog.find(name)
    if tool is None:
        return options
    hosted = tool.definition.hosted
    schema = None if hosted is None else hosted.options
    if schema is None:
        raise invalid_request(f"the tool {name!r} takes no options; leave them out", "options")
    lines = schema.refusals(options)
    if lines:
        raise invalid_request(f"options of the tool {name!r}: {'; '.join(lines)}", "options")
    return options


class ProgressStream:
    """Sends what a call reports while it runs. The stream begins with the first event, not before."""

    def __init__(self, exchange: Exchange, call_id: str) -> None:
        self._exchange = exchange
        self._call_id = call_id
        self._reports = Reports(self._send)

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Take one report, from any thread; what is not JSON is dropped. Never blocks."""
        told = progress_frame(self._call_id, progress, total, message)
        if told is not None:
            self._reports.take(told)

    async def result(self, execute: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Run the call and send its progress meanwhile; the result is for the caller to send."""
        return await self._reports.during(execute)

    async def end(self, body: bytes, headers: Headers) -> None:
        """Send the result and end the stream; the headers go out where nothing has been sent before."""
        if not self._exchange.started:
            await self._exchange.begin_stream(headers)
        await self._exchange.send_chunk(frame("result", body))
        await self._exchange.end_stream()

    async def _send(self, told: bytes) -> None:
        if not self._exchange.started:
            await self._exchange.begin_stream()
        await self._exchange.send_chunk(told)


def progress_frame(call_id: str, progress: float, total: float | None, message: str | None) -> bytes | None:
    """One `progress` event, or None where the report is not JSON; absent fields are left out."""
    fields: dict[str, object] = {"call_id": call_id, "progress": progress}
    if total is not None:
        fields["total"] = total
    if message is not None:
        fields["message"] = message
    if any(isinstance(value, float) and not math.isfinite(value) for value in fields.values()):
        return None
    try:
        return frame("progress", orjson.dumps(fields))
    except TypeError:
        return None


REPLAYED = "idempotent_replayed"
STORE_UNAVAILABLE = "store_unavailable"
TOO_MANY_WAITING = "too_many_waiting_calls"

_SUCCESS = ToolStatus.SUCCESS


def call_answer(result: ToolResult) -> bytes:
    """The answer's body; what is not there (`structured`, `retry_after_s`) is left out."""
    head = orjson.dumps(
        {
            "call_id": result.call_id,
            "output": result.output,
            "is_error": result.status is not _SUCCESS,
            "status": result.status,
        }
    )
    parts = [head[:-1], b',"metadata":', _metadata(result)]
    if result.structured is not None:
        parts += [b',"structured":', (encoded(result.structured) or "null").encode()]
    if result.retry_after_s is not None:
        parts += [b',"retry_after_s":', orjson.dumps(result.retry_after_s)]
    parts.append(b"}")
    return b"".join(parts)


def _metadata(result: ToolResult) -> bytes:
    """The metadata without the mark of a replay, which is a header: a replay's body is the first one's."""
    metadata = result.metadata
    if not metadata:
        return b"{}"
    return (encoded({name: value for name, value in metadata.items() if name != REPLAYED}) or "{}").encode()


def is_replay(result: ToolResult) -> bool:
    """Is it the first result of an earlier call under the same key."""
    return result.metadata.get(REPLAYED) is True


def replay_problem(result: ToolResult, context: CallContext) -> HttpProblem | None:
    """The error of a request whose idempotency key cannot be honoured; only for a request that has one."""
    code = result.metadata.get("code")
    if context.idempotency_key is None or code is None:
        return None
    if result.status is ToolStatus.DENIED and code == KEY_REUSED:
        message = "this Idempotency-Key was used for another call; use a new one"
        return HttpProblem(422, KEY_REUSED, message, param="Idempotency-Key")
    if result.status is ToolStatus.LIMITED and code == KEY_RUNNING:
        message = "the call with this Idempotency-Key still runs; ask again in a moment"
        return HttpProblem(409, KEY_RUNNING, message, param="Idempotency-Key")
    if result.status is ToolStatus.UNAVAILABLE and code == STORE_UNAVAILABLE:
        return store_unavailable()
    return None


def crowd_problem(result: ToolResult, context: CallContext) -> HttpProblem | None:
    """The error of a request to a session of which as many calls wait as may."""
    if result.status is ToolStatus.LIMITED and result.metadata.get("code") == TOO_MANY_WAITING:
        refused = SessionRefused(TOO_MANY_WAITING, result.output, retry_after_s=result.retry_after_s)
        return session_refused(refused)
    return replay_problem(result, context)


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
        request_id=exchange.request_id,
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
