"""The caller's tools as an OpenAPI document, and the operation of each: `POST /v1/tools/{name}`.

Importers of other programs make a tool of every operation of a document, so this one has nothing but tools: the
document of the whole API (`http/openapi.py`) would give a model the administration of the host.

Such programs lose the query of the document's URL, and some ignore `servers`. So agent and session can be a part of the
path: `/v1/tools/agent=NAME,session=CODE` is the root of a host that has these tools only, `/openapi.json` below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NotRequired, cast
from urllib.parse import quote
from zlib import crc32

from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from toolplug.catalog.call import NOT_SENT, ToolResult, ToolStatus, own_parts, text_of_result
from toolplug.catalog.exact_json import Answer
from toolplug.execution.executor import ToolExecutor
from toolplug.http.auth.authentication import ANYBODY
from toolplug.http.bodies.request_body import OrjsonResponse, read_arguments
from toolplug.http.errors import NO_HEADERS, Error, invalid_request, retry_after
from toolplug.http.requests import HostRequest, base_url, catalog_of, has_version, query_fields
from toolplug.http.routing import CALL, NOT_MODIFIED, READ, HostRoute, Parameter, answers, route
from toolplug.http.tools import (
    AGENT,
    CALL_HEADERS,
    SESSION,
    AskedCall,
    idempotency_key,
    replayed_headers,
    run_call,
)
from toolplug.http.tools_document import CALLED_AT, ToolsDocument, adds_parts, head_of
from toolplug.signatures.values import encode_value

_WHICH = Parameter(
    "catalog",
    "agent=NAME, session=CODE, or both with a comma",
    place="path",
    pattern=r"^(agent=[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}(,session=[A-Z2-7]{8})?|session=[A-Z2-7]{8})$",
)
_NAMED = Parameter("name", "the tool's wire or canonical name", place="path")
_CHOICE = frozenset({"agent", "session"})


class CallRefusal(Answer):
    """Why a call has no result."""

    error: Annotated[str | Error, Field(description="in words; of the request itself, the object of every error")]
    status: NotRequired[Annotated[ToolStatus, Field(description="of the call; absent for an error of the request")]]
    code: NotRequired[Annotated[object, Field(description="for programs, such as outcome_unknown")]]
    approval: NotRequired[Annotated[object, Field(description="what a person can approve, where the call needs it")]]
    credential: NotRequired[Annotated[object, Field(description="which credential of its own the caller has to send")]]
    sign_in: NotRequired[Annotated[object, Field(description="the link with which the caller signs in")]]
    retry_after_s: NotRequired[Annotated[float, Field(description="after so many seconds the same call may work")]]


class OperationAnswer(TypedDict):
    """The result itself where it is an object, which has fields of its own; else its text."""

    output: NotRequired[Annotated[str, Field(description="the text that the model sees")]]
    parts: NotRequired[
        Annotated[
            list[dict[str, object]], Field(description="images, audio, links and resources, as MCP content blocks")
        ]
    ]


_STATUSES: Mapping[ToolStatus, int] = {
    ToolStatus.DENIED: 403,
    ToolStatus.UNKNOWN_TOOL: 404,
    ToolStatus.LIMITED: 429,
}
_SHOWN = ("code", "approval", "credential", "sign_in")
"""Metadata of a failed result that its caller reads."""
_UNPROCESSABLE, _UNAVAILABLE = 422, 503
"""The status of all others: proxies and clients repeat what is answered with 5xx, and the tool may have run."""

_NOT_REACHED = NOT_SENT | {"loop", "not_entered", "part_off", "quarantined", "source_closed", "toolset_not_opened"}
"""Codes of calls for which no tool was looked for; of others only those that say when to retry were not sent."""

_OTHERS = {403: CallRefusal, 404: CallRefusal, 422: CallRefusal, 429: CallRefusal, 503: CallRefusal}


def _read_choice(request: HostRequest) -> tuple[str | None, str | None]:
    """Return the agent and the session of the query or the path. Raises `HttpProblem` for both, or a wrong path."""
    query = query_fields(request)
    fields = {name: query[name] for name in _CHOICE if query.get(name)}
    given = request.path_params.get("catalog")
    if given is not None:
        pairs = [part.partition("=") for part in given.split(",")]
        named = {name: value for name, _, value in pairs if value}
        if len(named) < len(pairs) or not named.keys() <= _CHOICE:
            raise invalid_request("the path should have agent=NAME, session=CODE, or both with a comma", "catalog")
        if twice := sorted(named.keys() & fields.keys()):
            raise invalid_request(f"{twice[0]!r} is in the path and in the query; give it once", twice[0])
        fields |= named
    return fields.get("agent"), fields.get("session")


def _root_of(request: HostRequest, agent: str | None, session: str | None) -> str:
    """Return the URL below which the paths of a document are."""
    chosen = [f"{name}={quote(value, safe='')}" for name, value in (("agent", agent), ("session", session)) if value]
    return f"{base_url(request)}{CALLED_AT}{','.join(chosen)}" if chosen else base_url(request)


class ToolDocuments:
    """The routes of the documents, which are kept encoded."""

    def __init__(self) -> None:
        self._document = ToolsDocument()
        described = answers(content_types=("application/json",), others=NOT_MODIFIED, errors=(400, 404))
        summary, choice = "The caller's tools as an OpenAPI document", (AGENT, SESSION)
        self.routes: tuple[HostRoute, ...] = tuple(
            route("GET", path, READ, summary, parameters=parameters)(described(self._show_tools))._replace(
                operation=operation
            )
            for path, operation, parameters in (
                ("/openapi.json", "describe_tools", choice),
                (f"{CALLED_AT}openapi.json", "describe_listed_tools", choice),
                (f"{CALLED_AT}{{catalog}}/openapi.json", "describe_chosen_tools", (_WHICH,)),
            )
        )

    async def _show_tools(self, request: HostRequest) -> Response:
        """Answer the document, or 304 to a client that has it. Raises `HttpProblem` and `AccessError`."""
        state = request.state
        agent, session = _read_choice(request)
        catalog = await catalog_of(state["host"], state["principal"], agent, session)
        with_auth = state["principal"] is not ANYBODY
        head = head_of(_root_of(request, agent, session), with_auth)
        # What the catalog does not know of counts as well: the address of the host, and its release.
        etag = f'"{catalog.etag}-openapi-{crc32(head):08x}"'
        headers = {"etag": etag, "cache-control": "private, no-cache", "vary": "authorization, x-api-key"}
        if has_version(request, etag):
            return Response(status_code=304, headers=headers)
        return OrjsonResponse(await self._document.write(catalog, head, with_auth), 200, headers)


@route(
    "POST",
    f"{CALLED_AT}{{name}}",
    CALL,
    "Call the tool; the body is its arguments",
    parameters=(_NAMED, AGENT, SESSION, *CALL_HEADERS),
)
@answers(OperationAnswer, others=_OTHERS, errors=(400, 409, 413, 415))
async def call_operation(request: HostRequest) -> Response:
    """Run one call; it is cancelled when its client hangs up. Raises `HttpProblem` and `AccessError`."""
    return await _call_operation(request)


@route(
    "POST",
    f"{CALLED_AT}{{catalog}}{CALLED_AT}{{name}}",
    CALL,
    "Call a tool of this agent or session; the body is its arguments",
    parameters=(_WHICH, _NAMED, *CALL_HEADERS),
)
@answers(OperationAnswer, others=_OTHERS, errors=(400, 409, 413, 415))
async def call_chosen_operation(request: HostRequest) -> Response:
    """Do the same among the tools that the path names. Raises `HttpProblem` and `AccessError`."""
    return await _call_operation(request)


async def _call_operation(request: HostRequest) -> Response:
    key = idempotency_key(request)
    agent, session = _read_choice(request)
    # Not from the parameters: a tool `stream` has the path of another route.
    name = request.scope["state"]["path"].rpartition("/")[2]
    asked = AskedCall(name, await read_arguments(request), agent=agent, session=session)
    return await run_call(request, asked, key, _respond)


def _respond(result: ToolResult, executor: ToolExecutor) -> Response:
    """Return the response for a result: the value of a success, else the reason in words."""
    status = result.status
    if status is ToolStatus.SUCCESS:
        return OrjsonResponse(_success(result, executor), headers=replayed_headers(result))
    answered = _UNAVAILABLE if _was_not_reached(result) else _STATUSES.get(status, _UNPROCESSABLE)
    shown = {name: result.metadata[name] for name in _SHOWN if name in result.metadata}
    body = cast("CallRefusal", {"status": status, "error": text_of_result(result), **shown})
    if result.retry_after_s is not None:
        body["retry_after_s"] = result.retry_after_s
    headers: dict[str, str] = {**(replayed_headers(result) or NO_HEADERS)}
    if answered == _STATUSES[ToolStatus.LIMITED] or (answered == _UNAVAILABLE and result.retry_after_s is not None):
        headers |= retry_after(result.retry_after_s)
    return OrjsonResponse(_encode(body), answered, headers)


def _was_not_reached(result: ToolResult) -> bool:
    """Return whether the call ended before anything of the tool ran, so that it can be repeated without harm."""
    known = result.retry_after_s is not None or result.metadata.get("code") in _NOT_REACHED
    return result.status is ToolStatus.UNAVAILABLE and known


def _success(result: ToolResult, executor: ToolExecutor) -> bytes:
    parts = own_parts(result.output, result.parts)
    more: Mapping[str, object] = {"parts": parts} if parts else {}
    structured: object = result.structured
    if not isinstance(structured, dict):
        return _encode({"output": result.output, **more})
    value = cast("Mapping[str, object]", structured)
    if not more or "parts" in value:
        return _encode(value)
    tool = executor.catalog.find(result.name)
    output = None if tool is None else tool.definition.output_schema
    whole = {**value, **more}
    # The answer is what the document says, also where that allows nothing else in the object.
    described = output is None or adds_parts(output) or output.is_valid(whole)
    return _encode(whole if described else value)


def _encode(value: object) -> bytes:
    return (encode_value(value) or "{}").encode()
