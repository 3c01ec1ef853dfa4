"""`POST /v1/responses`: a response, whole or as it is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from math import inf
from types import TracebackType
from typing import Self

import orjson

from toolplug.catalog.call import CallContext
from toolplug.errors import ApprovalRefused
from toolplug.host.host import Host
from toolplug.host.parts import listed
from toolplug.http.client_watch import ClientWatch
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.http.routing import APPROVALS
from toolplug.responses.builder import Event
from toolplug.responses.offer import ToolCaller
from toolplug.responses.request import ResponseRequest
from toolplug.responses.service import Responses
from toolplug.sessions.events import frame
from toolplug.toolsets.first_use import LazyExecutor

STUCK_S = 300.0
"""So long a connection may take nothing."""


class Outlet:
    """Sends chunks inside this scope. It looks now and then whether one is stuck: cheaper than a timer for each."""

    def __init__(self, exchange: Exchange, hang_up: Callable[[], None], *, stuck_s: float = STUCK_S) -> None:
        self._exchange = exchange
        self._hang_up = hang_up
        self._stuck_s = stuck_s
        self._loop = asyncio.get_running_loop()
        self._since = inf
        self._timer = self._loop.call_later(stuck_s, self._look)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    async def send(self, chunk: bytes) -> None:
        """Send one chunk; the caller is cancelled where the client never takes it."""
        self._since = self._loop.time()
        await self._exchange.send_chunk(chunk)
        self._since = inf

    def _look(self) -> None:
        left = self._since + self._stuck_s - self._loop.time()
        if left <= 0:
            self._hang_up()
        else:
            self._timer = self._loop.call_later(min(left, self._stuck_s), self._look)


_END = b"data: [DONE]\n\n"


async def send_events(
    exchange: Exchange, events: AsyncIterator[Event], hang_up: Callable[[], None], *, first: Event | None = None
) -> None:
    """Answer with the events; `first` stands before them, where it has been taken already."""
    with Outlet(exchange, hang_up) as outlet:
        await exchange.begin_stream()
        if first is not None:
            await outlet.send(_framed(first))
        async for event in events:
            await outlet.send(_framed(event))
        await outlet.send(_END)
        await exchange.end_stream()


def _framed(event: Event) -> bytes:
    return frame(str(event["type"]), orjson.dumps(event))


class Whose:
    """The caller of one request, as its agent and in its session."""

    def __init__(self, host: Host, exchange: Exchange, agent: str | None, session: str | None, strict: bool) -> None:
        self._host = host
        self._exchange = exchange
        self._agent = agent
        self._session = session
        self._strict = strict

    async def asker(self, conversation: str) -> ToolCaller:
        """The caller's tools in a conversation. Raises `AccessError`, and for a session `StoreError`."""
        host, principal = self._host, self._exchange.principal
        if self._session is not None:
            await host.sessions.find(self._session, principal.tenant)
        tools = host.executor_for(principal, agent=self._agent, session=self._session, within=conversation)
        if isinstance(tools, LazyExecutor):
            host.responses.conversations.use(conversation)
        return ToolCaller(
            executor=tools,
            context=CallContext(
                principal=principal, session=self._session, agent=self._agent, request_id=self._exchange.request_id
            ),
            listing=lambda: listed(tools),
            on_request=host.is_on_request,
            decide=self._decide,
            strict=self._strict,
        )

    async def _decide(self, ticket: str, approve: bool) -> None:
        """Decide where the caller may; what was decided before stays."""
        principal = self._exchange.principal
        if principal.has_scope(APPROVALS):
            with suppress(ApprovalRefused):
                decision = "approve" if approve else "deny"
                await self._host.approvals.decide(ticket, decision, principal, request_id=self._exchange.request_id)


def whose(host: Host, exchange: Exchange, request: ResponseRequest) -> Whose:
    """Who asks. Raises `HttpProblem` where header and metadata do not agree."""
    strict = _said(exchange, request, "strict") or "false"
    if strict not in {"true", "false"}:
        raise invalid_request("toolplug_strict should be true or false", "metadata.toolplug_strict")
    return Whose(
        host, exchange, _said(exchange, request, "agent"), _said(exchange, request, "session"), strict == "true"
    )


def _said(exchange: Exchange, request: ResponseRequest, name: str) -> str | None:
    by_header = exchange.header(f"x-toolplug-{name}".encode())
    by_metadata = (request.metadata or {}).get(f"toolplug_{name}")
    if by_header and by_metadata and by_header != by_metadata:
        message = f"metadata.toolplug_{name} and the header X-Toolplug-{name.title()} do not agree; send one of them"
        raise invalid_request(message, f"metadata.toolplug_{name}")
    return by_header or by_metadata or None


async def create_response(host: Host, exchange: Exchange) -> None:
    """Answer with the response; what runs for it is cancelled when its client hangs up, but for the background.

    Raises `HttpProblem`, `AccessError`, `ResponseRefused`, `BackendFailed` and `StoreError`.
    """
    request = await read_json(exchange, ResponseRequest)
    service = service_of(host)
    asker = whose(host, exchange, request)
    if request.background:
        await _background(service, exchange, request, asker)
        return
    with ClientWatch(exchange.receive) as watch:
        await _foreground(service, exchange, request, asker, watch.hang_up)


def service_of(host: Host) -> Responses:
    """What makes responses. Raises `HttpProblem` where no model's server is configured."""
    service = host.responses.service
    if service is None:
        message = "this host asks no model; its configuration has no section responses"
        raise HttpProblem(404, "not_configured", message)
    return service


async def _foreground(
    service: Responses, exchange: Exchange, request: ResponseRequest, asker: Whose, hang_up: Callable[[], None]
) -> None:
    async with aclosing(service.events(request, exchange.principal.tenant, asker.asker)) as events:
        first = await anext(events)
        if request.stream:
            await send_events(exchange, events, hang_up, first=first)
            return
        last = first
        async for event in events:
            last = event
        await exchange.answer(200, orjson.dumps(last["response"]))


async def _background(service: Responses, exchange: Exchange, request: ResponseRequest, asker: Whose) -> None:
    if not request.is_stored:
        raise invalid_request("store: a response in the background is read with GET, so it must be stored", "store")
    tenant = exchange.principal.tenant
    begun = await service.begin(request, tenant, asker.asker)
    if request.stream:
        await send_told(service, exchange, str(begun["id"]), -1)
    else:
        await exchange.answer(200, orjson.dumps(begun))


async def send_told(service: Responses, exchange: Exchange, response: str, after: int) -> None:
    """Answer with what is told of a response in the background after an event of that number.

    A client that hangs up ends nothing but this. Raises `ResponseRefused` and `StoreError`.
    """
    with ClientWatch(exchange.receive) as watch:
        async with aclosing(await service.listen(exchange.principal.tenant, response, after)) as events:
            await send_events(exchange, events, watch.hang_up)
