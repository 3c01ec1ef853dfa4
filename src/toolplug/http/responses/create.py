"""`POST /v1/responses`: a response, whole or as it is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import orjson

from toolplug.host.host import Host
from toolplug.http.client_watch import ClientWatch
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.http.responses.event_stream import send_events
from toolplug.http.responses.whose import Whose, whose
from toolplug.responses.request import ResponseRequest
from toolplug.responses.service import Responses


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
