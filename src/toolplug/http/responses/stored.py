"""Responses that can be read again: `/v1/responses/{id}` and what is below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import parse_qs

import orjson

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.problem import invalid_request
from toolplug.http.responses.create import send_told, service_of
from toolplug.responses.input_items import Item
from toolplug.responses.stored import as_listed

MAX_PAGE = 100
PAGE = 20

_INCLUDE = ("include", "include[]")
_NUMBER = re.compile(r"[0-9]{1,9}")
_NO_STORE = ((b"cache-control", b"no-store"),)


async def read_response(host: Host, exchange: Exchange) -> None:
    """Answer the response as it is now, or what is told of it.

    Raises `HttpProblem`, `ResponseRefused` and `StoreError`.
    """
    asked = _asked(exchange)
    if _flag(asked.get("stream")):
        after = _after(asked.get("starting_after"))
        await send_told(service_of(host), exchange, exchange.params["id"], after)
        return
    include = frozenset(value for name in _INCLUDE for value in asked.get(name, ()))
    kept = await service_of(host).read(exchange.principal.tenant, exchange.params["id"])
    await exchange.answer(200, orjson.dumps(kept.included(include)), headers=_NO_STORE)


async def delete_response(host: Host, exchange: Exchange) -> None:
    """Forget the response. Raises `ResponseRefused` and `StoreError`."""
    wanted = exchange.params["id"]
    await service_of(host).delete(exchange.principal.tenant, wanted)
    await exchange.answer(200, orjson.dumps({"id": wanted, "object": "response", "deleted": True}))


async def cancel_response(host: Host, exchange: Exchange) -> None:
    """Stop a response that is made in the background. Raises `ResponseRefused` and `StoreError`."""
    ended = await service_of(host).cancel(exchange.principal.tenant, exchange.params["id"])
    await exchange.answer(200, orjson.dumps(ended))


async def list_input_items(host: Host, exchange: Exchange) -> None:
    """Answer what the client had sent, the newest first unless asked otherwise.

    Raises `HttpProblem`, `ResponseRefused` and `StoreError`.
    """
    query = exchange.query()
    kept = await service_of(host).stored.read(exchange.principal.tenant, exchange.params["id"])
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise invalid_request(f"order: {order!r} is no order; asc and desc are", "order")
    items = [*kept.sent] if order == "asc" else [*kept.sent][::-1]
    after = _place_after(items, query.get("after"))
    limit = _limit(query.get("limit"))
    page = [as_listed(item) for item in items[after : after + limit]]
    body = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > after + limit,
    }
    await exchange.answer(200, orjson.dumps(body), headers=_NO_STORE)


def _asked(exchange: Exchange) -> dict[str, list[str]]:
    """The query; `include` is the one field of all that may stand there several times."""
    return parse_qs(exchange.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _flag(given: Sequence[str] | None) -> bool:
    if given is not None and given not in (["true"], ["false"]):
        raise invalid_request("stream should be true or false", "stream")
    return given == ["true"]


def _after(given: Sequence[str] | None) -> int:
    if given is None:
        return -1
    if len(given) > 1 or not _NUMBER.fullmatch(given[0]):
        raise invalid_request("starting_after should be the sequence_number of an event", "starting_after")
    return int(given[0])


def _limit(given: str | None) -> int:
    if given is None:
        return PAGE
    if not (given.isascii() and given.isdigit() and len(given) < 4 and 1 <= int(given) <= MAX_PAGE):
        raise invalid_request(f"limit should be a number from 1 to {MAX_PAGE}", "limit")
    return int(given)


def _place_after(items: Sequence[Item], after: str | None) -> int:
    if after is None:
        return 0
    for place, item in enumerate(items):
        if item["id"] == after:
            return place + 1
    raise invalid_request("after: no item of this response has that id", "after")
