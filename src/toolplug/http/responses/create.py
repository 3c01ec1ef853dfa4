"""`POST /v1/responses`: a response, whole or as it is made."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import orjson

from toolplug.host.host import Host
from toolplug.http.client_watch import ClientWatch
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.http.responses.outlet import Outlet
from toolplug.http.responses.whose import Whose, whose
from toolplug.responses.draft import Event
from toolplug.responses.request import ResponseRequest
from toolplug.responses.service import Responses
from toolplug.sessions.frame import frame

_END = b"data: [DONE]\n\n"


async def create_response(host: Host, exchange: Exchange) -> None:
    """Answer with the response; what runs for it is cancelled when its client hangs up.

    Raises `HttpProblem`, `AccessError`, `ResponseRefused`, `BackendFailed` and `StoreError`.
    """
    request = await read_json(exchange, ResponseRequest)
    service = service_of(host)
    asker = whose(host, exchange, request)
    tenant = exchange.principal.tenant
    if request.background:
        _check_background(request)
        await exchange.answer(200, orjson.dumps(await service.begin(request, tenant, asker.asker)))
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
            with Outlet(exchange, hang_up) as outlet:
                await _streamed(exchange, outlet, first, events)
            return
        last = first
        async for event in events:
            last = event
        await exchange.answer(200, orjson.dumps(last["response"]))


async def _streamed(exchange: Exchange, outlet: Outlet, first: Event, events: AsyncGenerator[Event]) -> None:
    await exchange.begin_stream()
    await outlet.send(_framed(first))
    async for event in events:
        await outlet.send(_framed(event))
    await outlet.send(_END)
    await exchange.end_stream()


def _framed(event: Event) -> bytes:
    return frame(str(event["type"]), orjson.dumps(event))


def _check_background(request: ResponseRequest) -> None:
    if request.stream:
        raise invalid_request("stream: a response in the background is read with GET; leave stream out", "stream")
    if not request.is_stored:
        raise invalid_request("store: a response in the background is read with GET, so it must be stored", "store")
