"""HTTP answers: bodies that are read, refusals that say what is wrong, lists as OpenAI's clients page through them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, ParamSpec, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolplug.http import IgnoredParts
from toolplug.runtime import TooManyWaiting
from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.storage.database import IndexUnavailable
from toolplug_file_search.storage.library import Library, TooMany
from toolplug_file_search.storage.paging import UnknownCursor
from toolplug_file_search.storage.records import Listed, Order, Page, Record, Status
from toolplug_file_search.storage.selection import NotThere

OpenLibrary = Callable[[Request], Library]
"""The library of the caller that a request comes from."""

Identifier = Annotated[str, Field(max_length=64)]
"""Of a file or vector store."""

Handler = Callable[[Request], Awaitable[Response]]
Model = TypeVar("Model", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")

MAX_BODY = 128 * 1024
"""Bytes of a body, which is read on the event loop."""
MAX_MEMBERS, MAX_ITEMS = 64, 40_000
"""Members of an object in a body, and items of all its objects and lists: a batch of 2,000 files with 16 attributes."""

_CODES = {"extra_forbidden": "unknown_parameter", "missing": "missing_parameter"}  # a union's members forbid others'
_LOG = logging.getLogger("toolplug_file_search")
_TYPES = {404: "not_found", 409: "conflict", 413: "invalid_request", 503: "server_error"}


class InThread(Protocol):
    """Calls a function that blocks in a thread of the provider: `ProviderContext.in_thread`."""

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the value of the function."""
        ...


class RequestRefused(Exception):
    """A request that is answered with an error of this status; `param` is the part of it that is wrong."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        self.status = status
        self.code = code
        self.param = param
        super().__init__(message)


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Order = "desc"
    after: Identifier | None = None
    before: Identifier | None = None
    filter: Status | None = None
    purpose: Annotated[str, Field(max_length=64)] | None = None


def answering(handler: Handler) -> Handler:
    """Make a handler's own exceptions answers in the contract's shape of errors, and say what it ignores."""

    @wraps(handler)
    async def answer(request: Request) -> Response:
        request.state.ignored = ignored = IgnoredParts.of(request, _LOG)
        try:
            return ignored.say_in(await handler(request))
        except RequestRefused as error:
            refused = error
        except NotThere as error:
            refused = RequestRefused(404, f"{error.what.replace(' ', '_')}_not_found", str(error))
        except TooMany as error:
            refused = RequestRefused(409, "quota_exceeded", str(error))
        except UnreadableDocument as error:
            refused = RequestRefused(400, error.code, str(error), "file")
        except UnknownCursor as error:
            refused = RequestRefused(400, "invalid_value", str(error), error.parameter)
        except TooManyWaiting as error:
            refused = RequestRefused(503, "too_many_waiting", f"{error}; try again")
        except IndexUnavailable as error:
            refused = RequestRefused(503, "index_unavailable", f"the index cannot answer now: {error}; try again")
        return _error(request, refused)

    return answer


async def body(request: Request, model: type[Model], *, most: int = MAX_BODY) -> Model:
    """The JSON body, of at most so many bytes.

    Raises `RequestRefused` naming the first thing that is wrong with it.
    """
    raw = await request.body()
    if len(raw) > most:
        raise RequestRefused(413, "request_too_large", f"the body has {len(raw)} bytes, {most} are allowed")
    try:
        given: object = from_json(raw or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise RequestRefused(400, "invalid_json", f"the body is not JSON: {error}") from None
    _check_size([given])
    if isinstance(given, dict):
        request.state.ignored.leave_out(cast("dict[str, object]", given), model)
    return _validate(lambda: model.model_validate(given))


def _check_size(given: object) -> None:
    """Refuse large objects and lists before they are read: a model lists what is wrong with each of their items."""
    waiting, items = [given], 0
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            inner = [*cast("dict[str, object]", each).values()]
            if len(inner) > MAX_MEMBERS:
                message = f"an object of the body has {len(inner)} members, {MAX_MEMBERS} are allowed"
                raise RequestRefused(400, "invalid_value", message)
        else:
            inner = cast("list[object]", each)
        items += len(inner)
        if items > MAX_ITEMS:
            message = f"the body has more than {MAX_ITEMS} items in its objects and lists"
            raise RequestRefused(400, "invalid_value", message)
        waiting += [value for value in inner if isinstance(value, dict | list)]


def page(request: Request) -> Page:
    """The part of a list that is asked for; raises `RequestRefused`."""
    query = _query(request)
    return Page(query.limit, query.order, query.after, query.before)


def state(request: Request) -> Status | None:
    """The state that the listed files of a vector store have to be in; raises `RequestRefused`."""
    return _query(request).filter


def _query(request: Request) -> _Query:
    fields: dict[str, object] = {**request.query_params}
    request.state.ignored.leave_out(fields, _Query)
    return _validate(lambda: _Query.model_validate(fields))


def list_answer(listed: Listed[Record], shape: Callable[[Record], Mapping[str, object]]) -> Response:
    """A list in OpenAI's shape."""
    data: Sequence[Mapping[str, object]] = [shape(record) for record in listed.records]
    return JSONResponse(
        {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
            "has_more": listed.more,
        }
    )


def _validate(read: Callable[[], Model]) -> Model:
    try:
        return read()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = ".".join(map(str, first["loc"])) or None
        code = _CODES.get(first["type"], "invalid_value")
        says = "is not supported here" if code == "unknown_parameter" else first["msg"]
        raise RequestRefused(400, code, f"{param}: {says}" if param else says, param) from None


def _error(request: Request, refused: RequestRefused) -> Response:
    return JSONResponse(
        {
            "error": {
                "type": _TYPES.get(refused.status, "invalid_request"),
                "code": refused.code,
                "message": str(refused),
                "param": refused.param,
                "request_id": getattr(request.state, "request_id", None),
            }
        },
        refused.status,
    )
