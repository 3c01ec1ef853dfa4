"""`POST /v1/responses`: a new response, whole or as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Literal, cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from typing_extensions import TypedDict

from toolplug.catalog.call import CallContext
from toolplug.catalog.exact_json import dump_json
from toolplug.errors import ApiError
from toolplug.http.auth.authentication import ANYBODY
from toolplug.http.bodies.request_body import OrjsonResponse, read_json
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.http.event_stream import EventStreamResponse, ServedEventStream
from toolplug.http.requests import (
    ClientWatch,
    HostRequest,
    credential_scope,
    passed_credentials,
    passed_trace_context,
    without_authentication,
)
from toolplug.http.routing import APPROVALS, CALL, JSON_OR_EVENTS, Parameter, answers, route
from toolplug.net.sse import frame
from toolplug.part_protocols.approvals import MAX_REASON, Decision, DecisionTerms
from toolplug.parts.responses.builder import Event, ResponseAnswer
from toolplug.parts.responses.http.tolerance import (
    Warnings,
    ignored_parts,
    prepare_fields,
    refuse_ignored,
    said_in_header,
    without_unknown,
)
from toolplug.parts.responses.offer import ToolCaller
from toolplug.parts.responses.request import APPROVALS_FIELD, ITEMS, Item, ResponseRequest
from toolplug.parts.responses.running import ResponsesService
from toolplug.parts.responses.service import Responses


class DeletedAnswer(TypedDict):
    """A response that is there no more."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ItemList(TypedDict):
    """A page of items."""

    object: Literal["list"]
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


LARGE_BYTES = 64 * 1024
"""An event that takes a millisecond to encode and send."""

END = b"data: [DONE]\n\n"


async def send_chunk(stream: ServedEventStream, chunk: bytes) -> None:
    """Send one chunk.

    After a large one it lets others run, as a call with long arguments has five of them in a row.
    """
    await stream.send(chunk)
    if len(chunk) > LARGE_BYTES:
        await asyncio.sleep(0)


async def send_events(stream: ServedEventStream, events: AsyncIterator[Event], *, first: Event | None = None) -> None:
    """Send the events; `first` comes before them, where it has been taken already."""
    await stream.start()
    if first is not None:
        await send_chunk(stream, _frame(first))
    async for event in events:
        await send_chunk(stream, _frame(event))
    await stream.send(END)


def _frame(event: Event) -> bytes:
    return frame(str(event["type"]), dump_json(event))


class ResponseCaller:
    """The caller of one request, as its agent and in its session."""

    def __init__(
        self,
        request: HostRequest,
        agent: str | None,
        session: str | None,
        strict: bool,
        warnings: Warnings,
        headers: Mapping[bytes, bytes],
    ) -> None:
        self._state = request.state
        self._headers = headers
        self._trace_context = passed_trace_context(request.scope)
        self._host = request.state["host"]
        self._running = running_of(request)
        self._agent = agent
        self._session = session
        self._strict = strict
        self._warnings = warnings

    async def tool_caller(self, conversation: str) -> ToolCaller:
        """Return the caller's tools in a conversation. Raises `AccessError`, and for a session `StoreError`."""
        host, principal = self._host, self._state["principal"]
        if self._session is not None:
            await host.sessions.find(self._session, principal.tenant)
        context = CallContext(
            principal=principal,
            session=self._session,
            agent=self._agent,
            request_id=self._state["request_id"],
            credentials=passed_credentials(self._headers),
            conversation=conversation,
            trace_context=self._trace_context,
        )
        tools = self._running.tools_of(host, context, conversation, self._decide, strict=self._strict)
        return tools._replace(warnings=self._warnings)

    async def _decide(self, ticket: str, approve: bool, reason: str) -> None:
        """Decide a ticket of a response, or another caller's with the scope for it; an earlier decision stays."""
        principal, approvals = self._state["principal"], self._host.approvals
        asked = await approvals.decidable(ticket, principal) is not None
        if not asked and (principal is ANYBODY or not principal.has_scope(APPROVALS)):
            return
        decision: Decision = "approve" if approve else "deny"
        request_id, own = self._state["request_id"], None if asked else ""
        terms = DecisionTerms(reason[:MAX_REASON] or None)
        with suppress(ApiError):
            await approvals.decide(
                ticket, decision, principal, decided="responses", request_id=request_id, own=own, terms=terms
            )


def response_caller(request: HostRequest, body: ResponseRequest, warnings: Warnings) -> ResponseCaller:
    """Return the caller that headers and metadata name.

    Raises `HttpProblem` if the two differ, and for what a strict request has that is ignored in others.
    """
    strict = _read_named(request, body, "strict") or "false"
    if strict not in {"true", "false"}:
        raise invalid_request("toolplug_strict should be true or false", "metadata.toolplug_strict")
    if strict == "true":
        refuse_ignored(warnings)
    approvals = (body.metadata or {}).get(APPROVALS_FIELD, ITEMS)
    if approvals != ITEMS:
        raise invalid_request(f"{APPROVALS_FIELD} should be {ITEMS}, or absent", f"metadata.{APPROVALS_FIELD}")
    agent, session = _read_named(request, body, "agent"), _read_named(request, body, "session")
    headers = request.state["headers"]
    if body.background:  # what let the request in is kept for the request only
        headers = without_authentication(headers)
    return ResponseCaller(request, agent, session, strict == "true", warnings, headers)


def _read_named(request: HostRequest, body: ResponseRequest, name: str) -> str | None:
    by_header = request.headers.get(f"x-toolplug-{name}")
    by_metadata = (body.metadata or {}).get(f"toolplug_{name}")
    if by_header and by_metadata and by_header != by_metadata:
        message = f"metadata.toolplug_{name} and the header X-Toolplug-{name.title()} do not agree; send one of them"
        raise invalid_request(message, f"metadata.toolplug_{name}")
    return by_header or by_metadata or None


_AGENT = Parameter("X-Toolplug-Agent", "whose tools: an agent's; metadata.toolplug_agent says the same", place="header")
_SESSION = Parameter(
    "X-Toolplug-Session", "whose tools: those of this session as well; metadata.toolplug_session", place="header"
)
_STRICT = Parameter(
    "X-Toolplug-Strict",
    "refuse what is not known here: fields, items, built-in tools that no provider declares; metadata.toolplug_strict",
    ("true", "false"),
    place="header",
)
CALLER = (_AGENT, _SESSION, _STRICT)
"""Whose tools a request is answered with, and how strictly it is read."""


@route(
    "POST",
    "/v1/responses",
    CALL,
    "A model's response, with the caller's tools",
    ResponseRequest,
    parameters=CALLER,
)
@answers(ResponseAnswer, errors=(404, 410, 429, 502, 503), content_types=JSON_OR_EVENTS)
async def create_response(request: HostRequest) -> Response:
    """Answer the model's response; its work is cancelled when the client hangs up, except in the background.

    Raises `HttpProblem`, `AccessError`, `ResponseRefused`, `BackendFailed`, `StoreError` and `ClientDisconnect`.
    """
    ignored = ignored_parts()
    body = await read_json(request, ResponseRequest, check=partial(prepare_fields, ignored))
    body = without_unknown(body, ignored)
    service = await service_of(request)
    caller = response_caller(request, body, ignored.list_warnings())
    await request.state["host"].quotas.count_call(request.state["principal"])
    tenant = request.state["principal"].tenant
    if body.background:
        return await _in_background(service, tenant, body, caller)
    if body.stream:
        return EventStreamResponse(partial(_stream_events, service, tenant, body, caller))
    with ClientWatch(request.receive):
        async with aclosing(service.events(body, tenant, caller.tool_caller)) as events:
            last = await anext(events)
            async for event in events:
                last = event
        return _answer(cast("ResponseAnswer", last["response"]))
    raise ClientDisconnect


def running_of(request: HostRequest) -> ResponsesService:
    """Return the part of the host. Raises `HttpProblem` if no model's server is configured."""
    running = request.state["host"].part(ResponsesService)
    if running is None or running.service is None:
        message = "this host asks no model; its configuration has no section responses"
        raise HttpProblem(404, "not_configured", message)
    return running


async def service_of(request: HostRequest) -> Responses:
    """Return the service for the caller's responses. Raises like `running_of`, and `StoreError`."""
    service = running_of(request).service
    assert service is not None, "checked just now"
    return service.of(request.state["principal"], await credential_scope(request))


async def _stream_events(
    service: Responses, tenant: str, body: ResponseRequest, caller: ResponseCaller, stream: ServedEventStream
) -> None:
    """Send the events of a new response. What fails before the first one is an error of the request."""
    async with aclosing(service.events(body, tenant, caller.tool_caller)) as events:
        first = await anext(events)
        stream.set_headers(said_in_header(cast("ResponseAnswer", first["response"])))
        await send_events(stream, events, first=first)


async def _in_background(service: Responses, tenant: str, body: ResponseRequest, caller: ResponseCaller) -> Response:
    if not body.is_stored:
        raise invalid_request("store: a response in the background is read with GET, so it must be stored", "store")
    begun = await service.begin(body, tenant, caller.tool_caller)
    if not body.stream:
        return _answer(begun)
    events = response_events(service, tenant, str(begun["id"]), -1)
    events.headers.update(said_in_header(begun))
    return events


def _answer(answer: ResponseAnswer) -> Response:
    return OrjsonResponse(answer, headers=said_in_header(answer))


def response_events(service: Responses, tenant: str, response: str, after: int) -> EventStreamResponse:
    """Return a stream of a background response's events, those with a number over `after`.

    A client that hangs up ends only this stream. Sending it raises `ResponseRefused` and `StoreError`.
    """

    async def write(stream: ServedEventStream) -> None:
        async with aclosing(await service.listen(tenant, response, after)) as events:
            await send_events(stream, events)

    return EventStreamResponse(write)
