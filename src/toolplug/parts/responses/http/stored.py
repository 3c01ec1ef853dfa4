"""Stored responses, `/v1/responses/{id}` and what is below it; and the models that a request may name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal
from urllib.parse import parse_qs

from starlette.responses import Response
from typing_extensions import TypedDict

from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.http.requests import HostRequest, query_fields
from toolplug.http.routing import CALL, JSON_OR_EVENTS, Parameter, answers, route
from toolplug.parts.responses.backend import ModelAnswer
from toolplug.parts.responses.builder import ResponseAnswer
from toolplug.parts.responses.http.create import DeletedAnswer, ItemList, response_events, service_of
from toolplug.parts.responses.request import Item
from toolplug.parts.responses.stored import as_listed

MAX_PAGE = 100
PAGE = 20

_INCLUDED = ("include", "include[]")
_NUMBER = re.compile(r"[0-9]{1,9}")
_NO_STORE = {"cache-control": "no-store"}

_ONE = "/v1/responses/{id}"
_INCLUDE = Parameter("include", "what is left out otherwise, such as a search's results; may be repeated")
_STREAM = Parameter("stream", "its events instead; of a response with background and stream", ("true", "false"))
_STARTING_AFTER = Parameter("starting_after", "with stream: only the events after that sequence_number")
_ORDER = Parameter("order", "desc when absent: the newest first", ("asc", "desc"))
_LIMIT = Parameter("limit", "how many at most; 20 when absent")
_AFTER = Parameter("after", "the id of the last item of the page before")


@route("GET", _ONE, CALL, "A stored response", parameters=(_INCLUDE, _STREAM, _STARTING_AFTER))
@answers(ResponseAnswer, errors=(400, 404, 503), content_types=JSON_OR_EVENTS)
async def read_response(request: HostRequest) -> Response:
    """Answer the response, or a stream of its events. Raises `HttpProblem`, `ResponseRefused` and `StoreError`."""
    state = request.state
    asked = parse_qs(request.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    if _flag(asked.get("stream")):
        after = _after(asked.get("starting_after"))
        return response_events(await service_of(request), state["principal"].tenant, request.path_params["id"], after)
    include = frozenset(value for name in _INCLUDED for value in asked.get(name, ()))
    kept = await (await service_of(request)).read(state["principal"].tenant, request.path_params["id"])
    return OrjsonResponse(kept.include_fields(include), 200, _NO_STORE)


@route("DELETE", _ONE, CALL, "Forget a response")
@answers(DeletedAnswer, errors=(404, 503))
async def delete_response(request: HostRequest) -> OrjsonResponse[DeletedAnswer]:
    """Forget the response. Raises `ResponseRefused` and `StoreError`."""
    wanted = request.path_params["id"]
    await (await service_of(request)).delete(request.state["principal"].tenant, wanted)
    return OrjsonResponse({"id": wanted, "object": "response", "deleted": True})


@route("POST", f"{_ONE}/cancel", CALL, "Stop a response in the background")
@answers(ResponseAnswer, errors=(404, 409, 503))
async def cancel_response(request: HostRequest) -> OrjsonResponse[ResponseAnswer]:
    """Stop a response that is made in the background. Raises `ResponseRefused` and `StoreError`."""
    ended = await (await service_of(request)).cancel(request.state["principal"].tenant, request.path_params["id"])
    return OrjsonResponse(ended)


@route("GET", f"{_ONE}/input_items", CALL, "What a response was made from", parameters=(_ORDER, _LIMIT, _AFTER))
@answers(ItemList, errors=(400, 404, 503))
async def list_input_items(request: HostRequest) -> OrjsonResponse[ItemList]:
    """Answer a page of the items that the client sent, the newest first by default.

    Raises `HttpProblem`, `ResponseRefused` and `StoreError`.
    """
    query = query_fields(request)
    kept = await (await service_of(request)).stored.read(request.state["principal"].tenant, request.path_params["id"])
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise invalid_request(f"order: {order!r} is no order; asc and desc are", "order")
    items = [*kept.sent] if order == "asc" else [*kept.sent][::-1]
    after = _place_after(items, query.get("after"))
    limit = _limit(query.get("limit"))
    page = [as_listed(item) for item in items[after : after + limit]]
    body: ItemList = {
        "object": "list",
        "data": page,
        "first_id": str(page[0]["id"]) if page else None,
        "last_id": str(page[-1]["id"]) if page else None,
        "has_more": len(items) > after + limit,
    }
    return OrjsonResponse(body, 200, _NO_STORE)


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


class ModelList(TypedDict):
    """The models that a request may name."""

    object: Literal["list"]
    data: list[ModelAnswer]


@route("GET", "/v1/models", CALL, "The models of the model's server")
@answers(ModelList, errors=(404, 429, 502))
async def list_models(request: HostRequest) -> OrjsonResponse[ModelList]:
    """Answer the models. Raises `HttpProblem` and `BackendFailed`."""
    return OrjsonResponse({"object": "list", "data": await (await service_of(request)).models()})


@route("GET", "/v1/models/{id:path}", CALL, "One of these models")
@answers(ModelAnswer, errors=(404, 429, 502))
async def read_model(request: HostRequest) -> OrjsonResponse[ModelAnswer]:
    """Answer the model. Raises `HttpProblem` and `BackendFailed`."""
    wanted = request.path_params["id"]
    for model in await (await service_of(request)).models():
        if model["id"] == wanted:
            return OrjsonResponse(model)
    raise HttpProblem(404, "model_not_found", "the model's server has no model of this name", param="id")


def _refuse(message: str) -> HttpProblem:
    return HttpProblem(501, "not_supported", message)


@route("POST", "/v1/responses/input_tokens", CALL, "Not supported: only a model's server can count tokens")
@answers(ResponseAnswer, errors=(501,))
async def count_input_tokens(request: HostRequest) -> OrjsonResponse[ResponseAnswer]:
    """Refuse, as Chat Completions has no such request. Raises `HttpProblem`."""
    raise _refuse("this host cannot count tokens; send the request, and read usage.input_tokens of its answer")


@route("POST", "/v1/responses/compact", CALL, "Not supported: items are never compacted here")
@answers(ResponseAnswer, errors=(501,))
async def compact_response(request: HostRequest) -> OrjsonResponse[ResponseAnswer]:
    """Refuse, as only a model's server can read what it has compacted. Raises `HttpProblem`."""
    raise _refuse("this host compacts no items; send a shorter input, or continue without the oldest items")
