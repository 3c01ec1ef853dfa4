"""HTTP answers: bodies that are read, refusals that say what is wrong, lists as OpenAI's clients page through them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolplug.http import IgnoredParts
from toolplug_code_interpreter.container import ContainerEnded, FileRefused
from toolplug_code_interpreter.containers import NoSuchContainer, TooManyContainers
from toolplug_code_interpreter.sandbox.interpreter import Unavailable

Handler = Callable[[Request], Awaitable[Response]]
Model = TypeVar("Model", bound=BaseModel)
T = TypeVar("T")
Shape = Mapping[str, object]

_CODES = {"unsupported": "unknown_parameter", "missing": "missing_parameter", "json_invalid": "invalid_json"}
_TYPES = {404: "not_found", 409: "conflict", 413: "invalid_request", 429: "too_many_requests", 503: "server_error"}
_RETRY_S = 5
_FIELDS = TypeAdapter(dict[str, object])
_LOG = logging.getLogger("toolplug_code_interpreter")

MAX_BODY = 64 * 1024
"""Bytes of a JSON body: the model that reads it lists each name that it does not know."""


class RequestRefused(Exception):
    """A request that is answered with an error of this status; `param` is the part of it that is wrong."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        self.status = status
        self.code = code
        self.param = param
        super().__init__(message)


class Page(BaseModel):
    """The part of a list that is asked for."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    name: str | None = None


def answering(handler: Handler) -> Handler:
    """Make a handler's own exceptions answers in the host's shape of errors, and say what it ignores."""

    @wraps(handler)
    async def answer(request: Request) -> Response:
        request.state.ignored = ignored = IgnoredParts.of(request, _LOG)
        try:
            return ignored.say_in(await handler(request))
        except RequestRefused as error:
            refused = error
        except (NoSuchContainer, ContainerEnded) as error:
            refused = RequestRefused(404, "container_not_found", str(error))
        except TooManyContainers as error:
            refused = RequestRefused(429, "too_many_containers", str(error))
        except FileRefused as error:
            refused = RequestRefused(*((409, "container_full") if error.full else (404, "file_not_found")), str(error))
        except Unavailable as error:
            refused = RequestRefused(503, "containers_unavailable", f"no container can be started: {error}")
        return _error(request, refused)

    return answer


async def body(request: Request, model: type[Model]) -> Model:
    """Return the JSON body. Raises `RequestRefused` naming the first thing that is wrong with it."""
    raw = await request.body()
    if len(raw) > MAX_BODY:
        raise RequestRefused(413, "request_too_large", f"the body has {len(raw)} bytes, {MAX_BODY} are allowed")
    return read_fields(request, model, validate(lambda: _FIELDS.validate_json(raw or b"{}")))


def read_fields(request: Request, model: type[Model], fields: dict[str, object]) -> Model:
    """Return the fields as the model, without those that it does not have. Raises `RequestRefused`."""
    request.state.ignored.leave_out(fields, model)
    return validate(lambda: model.model_validate(fields))


def page_answer(request: Request, shapes: Sequence[Shape]) -> Response:
    """Return the asked part of a list, which is given oldest first, in OpenAI's shape. Raises `RequestRefused`."""
    page = read_fields(request, Page, {**request.query_params})
    listed = [each for each in shapes if page.name is None or each.get("name") == page.name]
    if page.order == "desc":
        listed.reverse()
    if page.after is not None:
        place = next((index for index, each in enumerate(listed) if each["id"] == page.after), None)
        if place is None:
            raise RequestRefused(
                400, "invalid_value", f"after: nothing in this list has the id {page.after!r}", "after"
            )
        listed = listed[place + 1 :]
    data = listed[: page.limit]
    return JSONResponse(
        {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
            "has_more": len(listed) > len(data),
        }
    )


def validate(read: Callable[[], T]) -> T:
    """Return what is read. Raises `RequestRefused` naming the first thing that is wrong with it."""
    try:
        return read()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = ".".join(map(str, first["loc"])) or None
        code = _CODES.get(first["type"], "invalid_value")
        says = f"is not supported here; {first['msg']}" if code == "unknown_parameter" else first["msg"]
        raise RequestRefused(400, code, f"{param}: {says}" if param else says, param) from None


def _error(request: Request, refused: RequestRefused) -> Response:
    error = {
        "type": _TYPES.get(refused.status, "invalid_request"),
        "code": refused.code,
        "message": str(refused),
        "param": refused.param,
        "request_id": getattr(request.state, "request_id", None),
    }
    headers = {"Retry-After": str(_RETRY_S)} if refused.status in (429, 503) else None
    return JSONResponse({"error": error}, refused.status, headers)
