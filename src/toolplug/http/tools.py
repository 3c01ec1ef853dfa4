"""`POST /v1/tool-calls`: one call, answered with 200 however the tool ends.

Another host that links to this one sends two headers (docs/how-to/link-hosts.md): `Toolplug-Principal:
tenant=t1&subject=alice`, percent-encoded, names the caller there, and `Toolplug-Via: ID, ID` the hosts on the way.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Annotated, NamedTuple, NotRequired, cast, get_args
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from typing_extensions import TypedDict

from toolplug.catalog.call import (
    ADMIN,
    CODE_PATTERN,
    DELEGATE,
    EMPTY,
    OPERATOR,
    CallContext,
    Deadline,
    Principal,
    ToolCall,
    ToolResult,
    ToolStatus,
    no_tools,
)
from toolplug.catalog.exact_json import Answer, dump_json
from toolplug.catalog.render import Dialect
from toolplug.catalog.text import is_identity
from toolplug.catalog.validation.json_size import MAX_NAMES
from toolplug.errors import ApiError
from toolplug.execution.executor import CallerTools, ToolExecutor
from toolplug.execution.idempotency import KEY_REUSED, KEY_RUNNING
from toolplug.execution.results import REPLAYED, Reports, call_answer, unavailable
from toolplug.http.auth.authentication import insufficient_scope, viewer_of
from toolplug.http.bodies.request_body import OrjsonResponse, read_json
from toolplug.http.errors import HttpProblem, api_problem, invalid_request, store_unavailable
from toolplug.http.event_stream import EventStreamResponse, ServedEventStream
from toolplug.http.requests import (
    ClientWatch,
    HostRequest,
    HostState,
    catalog_of,
    executor_of,
    has_version,
    passed_credentials,
    passed_trace_context,
    query_fields,
)
from toolplug.http.routing import (
    CALL,
    IDEMPOTENCY_KEY,
    JSON_OR_EVENTS,
    NOT_MODIFIED,
    READ,
    TENANT,
    Parameter,
    answers,
    route,
)
from toolplug.net.sse import frame

MAX_TIMEOUT_MS = 300_000
MAX_ID = 256
MAX_NAME = 256
MAX_TOOLSETS = 256
MAX_OPTIONS = 100

Arguments = Annotated[dict[str, object], Field(max_length=MAX_NAMES)] | str


class CallBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """One tool call."""

    id: Annotated[str | None, Field(max_length=MAX_ID, description="comes back as call_id; made up when absent")] = None
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME, description="the tool's canonical or wire name")]
    arguments: Annotated[Arguments, Field(description="an object, or its JSON text")] = "{}"
    agent: Annotated[str | None, Field(description="whose tools: an agent's")] = None
    session: Annotated[str | None, Field(description="whose tools: those of this session as well")] = None
    toolsets: list[str] | None = Field(
        None, max_length=MAX_TOOLSETS, description="among the agent's; all of them when absent or empty"
    )
    options: dict[str, object] | None = Field(
        None, max_length=MAX_OPTIONS, description="options of the expanded built-in tool type"
    )
    approval: Annotated[str | None, Field(description="the approval under which the call is repeated")] = None
    timeoutMs: int | None = Field(None, ge=1, le=MAX_TIMEOUT_MS, description="only shortens the tool's own time")


class CallAnswer(Answer):
    """How a tool call ended."""

    call_id: str
    output: Annotated[str, Field(description="the text that the model sees")]
    is_error: bool
    status: ToolStatus
    structured: NotRequired[
        Annotated[object, Field(description="the JSON value behind the output; absent for plain text")]
    ]
    parts: NotRequired[
        Annotated[
            list[dict[str, object]], Field(description="images, audio, links and resources, as MCP content blocks")
        ]
    ]
    metadata: dict[str, object]
    retry_after_s: NotRequired[Annotated[float, Field(description="after so many seconds the same call may work")]]


class AcceptedAnswer(TypedDict):
    """A call that is answered later. The plugin that keeps it says what else its record has."""

    taskId: str
    status: str


class ToolList(TypedDict):
    """The caller's tools in one dialect."""

    tools: list[dict[str, object]]


DIALECTS: tuple[str, ...] = get_args(Dialect)
DEFAULT_DIALECT = "chat"

AGENT = Parameter("agent", "whose tools: an agent's")
SESSION = Parameter("session", "whose tools: those of this session as well", pattern=CODE_PATTERN)
_TOOLSETS = Parameter("toolsets", "ids among the agent's, separated by commas; all of them when absent or empty")
_FORMAT = Parameter("format", f"the model API's dialect; {DEFAULT_DIALECT} when absent", DIALECTS)
PRINCIPAL = "Toolplug-Principal"
VIA = "Toolplug-Via"
MAX_HOPS = 5
"""The most hosts on the way to this one."""

_PREFER = b"prefer"
_PRINCIPAL, _VIA = PRINCIPAL.lower().encode(), VIA.lower().encode()
_MAX_VIA = 1024
_NOT_PASSED_ON = frozenset({ADMIN, OPERATOR, DELEGATE})
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def delegate(principal: Principal, headers: Mapping[bytes, bytes]) -> Principal:
    """Return the caller that the header names, with the scopes and agents of the key; the key's holder without one.

    Raises `HttpProblem` for a key without the scope `delegate`, and for an invalid header.
    """
    given = headers.get(_PRINCIPAL)
    if given is None:
        return principal
    if not principal.delegates:
        raise insufficient_scope(DELEGATE)
    try:
        fields = dict(parse_qsl(given.decode("ascii"), strict_parsing=True, max_num_fields=2, errors="strict"))
    except ValueError:
        fields = {}
    if fields.keys() != {"tenant", "subject"} or not all(map(is_identity, fields.values())):
        raise invalid_request(f"{PRINCIPAL} should be tenant=NAME&subject=NAME, percent-encoded", PRINCIPAL)
    scopes = principal.scopes - _NOT_PASSED_ON
    return replace(principal, tenant=fields["tenant"], subject=fields["subject"], scopes=scopes)


def hosts_on_the_way(headers: Mapping[bytes, bytes]) -> tuple[str, ...]:
    """Return the ids of the hosts that the request came through. Raises `HttpProblem` for an invalid header."""
    given = headers.get(_VIA)
    if given is None:
        return ()
    ids = [part.strip() for part in given[:_MAX_VIA].decode("latin-1").split(",")]
    if len(given) > _MAX_VIA or not all(_ID.fullmatch(part) for part in ids):
        raise invalid_request(f"{VIA} should be the ids of hosts, separated by commas", VIA)
    return tuple(ids)


def loop_in(via: tuple[str, ...], own: str) -> str | None:
    """Return why a request that came through these hosts ends here; None if it may go on."""
    if own in via:
        return "loop: the call came through this host before"
    if len(via) >= MAX_HOPS:
        return f"loop: the call came through {len(via)} hosts, at most {MAX_HOPS - 1} are allowed"
    return None


DELEGATION = Parameter(
    PRINCIPAL, "the caller at a linked host: tenant=NAME&subject=NAME; needs the scope delegate", place="header"
)
WAY = Parameter(VIA, "the ids of the hosts that the request came through, separated by commas", place="header")
PREFER = Parameter(
    "Prefer", "respond-async: answer at once with a task, where a plugin has tasks; else ignored", place="header"
)
CALL_HEADERS = (IDEMPOTENCY_KEY, DELEGATION, WAY)
_LISTING = (_FORMAT, AGENT, SESSION, _TOOLSETS, TENANT)


@route("GET", "/v1/tools", READ, "The caller's tools", parameters=_LISTING)
@answers(ToolList, others=NOT_MODIFIED, errors=(400, 404))
async def list_tools(request: HostRequest) -> Response:
    """Answer the list, or 304 to a client that has it. Raises `HttpProblem` and `AccessError`."""
    state = request.state
    query = query_fields(request)
    dialect = query.get("format", DEFAULT_DIALECT)
    if dialect not in DIALECTS:
        raise invalid_request(f"there is no format {dialect[:40]!r}; there are {', '.join(DIALECTS)}", "format")
    toolsets = [name for name in query.get("toolsets", "").split(",") if name]
    agent, session = query.get("agent") or None, query.get("session") or None
    catalog = await catalog_of(state["host"], viewer_of(request), agent, session, toolsets)
    etag = f'"{catalog.etag}-{dialect}"'
    headers = {"etag": etag, "cache-control": "private, no-cache", "vary": "authorization, x-api-key"}
    if has_version(request, etag):
        return Response(status_code=304, headers=headers)
    tools = catalog.render(cast("Dialect", dialect))  # a member, as was just checked
    return OrjsonResponse(b'{"tools":' + tools + b"}", 200, headers)


def checked_options(executor: ToolExecutor, name: str, options: Mapping[str, object]) -> Mapping[str, object]:
    """Return the options. Raises `HttpProblem` if the tool is listed and does not accept them."""
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


def progress_frame(call_id: str, progress: float, total: float | None, message: str | None) -> bytes | None:
    """Return one `progress` event without absent fields; None if the report is not JSON."""
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


STORE_UNAVAILABLE = "store_unavailable"
TOO_MANY_WAITING = "too_many_waiting_calls"


def replay_problem(result: ToolResult, context: CallContext) -> HttpProblem | None:
    """Return the error of a request whose idempotency key cannot be honoured; None for any other."""
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


def too_many_waiting(result: ToolResult, context: CallContext) -> HttpProblem | None:
    """Return the error of a call to a session with too many waiting calls, else that of `replay_problem`."""
    if result.status is ToolStatus.LIMITED and result.metadata.get("code") == TOO_MANY_WAITING:
        return api_problem(ApiError(TOO_MANY_WAITING, result.output, retry_after_s=result.retry_after_s))
    return replay_problem(result, context)


_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_REPLAYED = {"idempotent-replayed": "true"}
_EVENTS = b"text/event-stream"

Problem = Callable[[ToolResult, CallContext], HttpProblem | None]
"""Returns the error of the request that a result stands for; None if the result is the answer."""

Respond = Callable[[ToolResult, ToolExecutor], Response]
"""Returns the response for a result of the executor's tool."""


class AskedCall(NamedTuple):
    """The call that a request asks for, whatever its form; `arguments` are an object or its JSON text."""

    name: str
    arguments: Mapping[str, object] | str | bytes
    id: str | None = None
    agent: str | None = None
    session: str | None = None
    toolsets: list[str] | None = None
    options: Mapping[str, object] | None = None
    approval: str | None = None
    timeout_ms: int | None = None


def answer_call(result: ToolResult, executor: ToolExecutor) -> Response:
    """Return the whole result as a response with status 200."""
    return OrjsonResponse(call_answer(result), headers=replayed_headers(result))


def replayed_headers(result: ToolResult) -> Mapping[str, str] | None:
    """Return the headers of a result that an earlier call under the same key has left; None for any other."""
    return _REPLAYED if result.metadata.get(REPLAYED) is True else None


@route("POST", "/v1/tool-calls", CALL, "Call a tool; 200 however it ends", CallBody, parameters=(*CALL_HEADERS, PREFER))
@answers(CallAnswer, others={202: AcceptedAnswer}, errors=(404, 409, 422), content_types=JSON_OR_EVENTS)
async def call_tool(request: HostRequest) -> Response:
    """Run one call; it is cancelled when its client hangs up. Raises `HttpProblem` and `AccessError`."""
    key = idempotency_key(request)
    body = await read_json(request, CallBody)
    asked = AskedCall(
        body.name,
        body.arguments,
        body.id,
        body.agent,
        body.session,
        body.toolsets,
        body.options,
        body.approval,
        body.timeoutMs,
    )
    return await run_call(request, asked, key)


async def run_call(request: HostRequest, asked: AskedCall, key: str | None, respond: Respond | None = None) -> Response:
    """Run the call for the request's caller, or the one that it is delegated for, and return its response.

    `key` is the idempotency key. Without `respond` the response is the whole result, or a stream that ends with it.
    Raises `HttpProblem` and `AccessError`.
    """
    state: HostState = request.scope["state"]
    state["principal"] = delegate(state["principal"], state["headers"])
    via = hosts_on_the_way(state["headers"])
    await state["host"].quotas.count_call(state["principal"])
    executor = await executor_of(state["host"], state["principal"], asked.agent, asked.session, asked.toolsets)
    context = CallContext(
        principal=state["principal"],
        session=asked.session,
        agent=asked.agent,
        deadline=deadline(asked.timeout_ms),
        idempotency_key=key,
        approval=asked.approval,
        options=checked_options(executor, asked.name, asked.options) if asked.options else EMPTY,
        request_id=state["request_id"],
        credentials=passed_credentials(state["headers"]),
        trace_context=passed_trace_context(request.scope),
        via=via,
        # What the request leaves out stays left out for the tools that its tool calls.
        tools_of=partial(CallerTools, executor) if asked.toolsets else no_tools,
    )
    scope = await state["host"].scope_of(context.credentials) if key else ""
    call = ToolCall(call_id(asked.id, context, scope), asked.name, asked.arguments)
    loop = loop_in(via, state["host"].toolsets.sources.host) if via else None
    if loop is not None:
        return (respond or answer_call)(unavailable(call, loop, code="loop"), executor)
    if respond is None and _PREFER in state["headers"]:
        accepted = await _accept(state, executor, call, context)
        if accepted is not None:
            return accepted
    return await call_response(request, executor, call, context, respond=respond)


async def _accept(state: HostState, executor: ToolExecutor, call: ToolCall, context: CallContext) -> Response | None:
    """Return the record of a call that is answered later, where the request prefers that and a plugin can."""
    preferences = state["headers"][_PREFER].lower().split(b",")
    if b"respond-async" not in [each.partition(b";")[0].strip() for each in preferences]:
        return None
    # RFC 7240: a preference that nobody can honour is ignored.
    for extension in state["host"].plugins.mcp_extensions():
        accepted = await extension.accept_call(executor, call, context)
        if accepted is not None:
            headers = {"location": accepted.path, "preference-applied": "respond-async"}
            return OrjsonResponse(dump_json(accepted.record), 202, headers)
    return None


async def call_response(
    request: HostRequest,
    executor: ToolExecutor,
    call: ToolCall,
    context: CallContext,
    problem: Problem = replay_problem,
    respond: Respond | None = None,
) -> Response:
    """Return the response for the call's result; without `respond` perhaps a stream of its progress before it.

    Raises `HttpProblem` for a result that `problem` treats as an error of the request, and `ClientDisconnect`.
    """
    state: HostState = request.scope["state"]
    if respond is None and _EVENTS in state["headers"].get(b"accept", b""):
        return EventStreamResponse(partial(_stream_call, executor, call, context, problem))
    with ClientWatch(request.receive):
        result = await executor.execute(call, context)
        _check(problem(result, context))
        return (respond or answer_call)(result, executor)
    raise ClientDisconnect


async def _stream_call(
    executor: ToolExecutor, call: ToolCall, context: CallContext, problem: Problem, stream: ServedEventStream
) -> None:
    """Run the call and send its progress, then its result. The stream starts with the first report of progress."""
    reports = Reports(stream.send)

    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        event = progress_frame(call.id, progress, total, message)
        if event is not None:
            reports.take(event)

    result = await reports.during(lambda: executor.execute(call, context._replace(report=report)))
    if not stream.started:
        _check(problem(result, context))
        if (headers := replayed_headers(result)) is not None:
            stream.set_headers(headers)
    await stream.send(frame("result", call_answer(result)))


def call_id(given: str | None, context: CallContext, scope: str) -> str:
    """Return the client's own id of a call, or a new one; `scope` is that of the credentials that it brings.

    A caller's calls under one idempotency key have the same: a repetition gets the first answer to the letter.
    """
    if given or context.idempotency_key is None:
        return given or f"call_{token_hex(8)}"
    principal = context.principal
    owner = ascii((principal.tenant, principal.subject, context.idempotency_key, *([scope] if scope else [])))
    return f"call_{hashlib.sha256(owner.encode()).hexdigest()[:16]}"


def deadline(timeout_ms: int | None) -> float | None:
    """Return the loop time in seconds at which a call must have ended; None without a timeout."""
    return None if timeout_ms is None else Deadline.after(asyncio.get_running_loop().time(), timeout_ms / 1000)


def idempotency_key(request: HostRequest) -> str | None:
    """Return the request's `Idempotency-Key`, None without one. Raises `HttpProblem` if it is invalid."""
    state: HostState = request.scope["state"]
    given = state["headers"].get(b"idempotency-key")
    if given is None:
        return None
    key = given.decode("latin-1")
    if not _KEY.fullmatch(key):
        raise invalid_request("Idempotency-Key should be 1 to 255 visible ASCII characters", "Idempotency-Key")
    return key


def _check(problem: HttpProblem | None) -> None:
    if problem is not None:
        raise problem
