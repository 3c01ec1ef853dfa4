"""Request bodies: refused over their limit, by the declared length or while they are read, and validated as JSON."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic.alias_generators import to_camel
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive
from typing_extensions import TypeVar

from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.config.model_shape import known_keys, models_in, shapes_at, shapes_of
from toolplug.config.nearest import name_hint
from toolplug.config.wording import own_text, right_shape
from toolplug.errors import InvalidJson
from toolplug.http.errors import NOSNIFF, HttpProblem, invalid_request
from toolplug.http.requests import HostRequest, HostState


class CamelBody(BaseModel):
    """A body: closed, frozen, and without conversions that a client would not expect."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=False
    )


def absent(schema: dict[str, JsonValue]) -> None:
    """Describe a field that is left out rather than sent as null: it has no default."""
    del schema["default"]


DEFAULT_MAX_BODY = 1024 * 1024
MAX_FILE_BODY = 50 * 1024 * 1024

A = TypeVar("A", default=bytes)

JSON = "application/json"
_JSON = JSON.encode()


class OrjsonResponse(Response, Generic[A]):
    """A JSON response with an answer of the type `A`; `bytes` are sent as they are."""

    media_type = JSON

    def __init__(self, content: A | bytes, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, headers)

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Set the headers, `X-Content-Type-Options: nosniff` included."""
        super().init_headers(headers)
        self.raw_headers.append(NOSNIFF)

    def render(self, content: Any) -> bytes:
        """Return the content as JSON; `bytes` as they are."""
        return content if isinstance(content, bytes) else dump_json(content)


def check_declared(headers: Mapping[bytes, bytes], limit: int) -> None:
    """Raise `HttpProblem` where the declared length is not a number or over the limit in bytes, or the body encoded."""
    if b"content-encoding" in headers:
        message = "the body is not decompressed here; send it without Content-Encoding"
        accepted = {"Accept-Encoding": "identity"}
        raise HttpProblem(415, "unsupported_media_type", message, param="Content-Encoding", headers=accepted)
    declared = headers.get(b"content-length")
    if declared is None:
        return
    if not declared.isdigit():
        raise invalid_request("the header content-length is no number", "content-length")
    if len(declared) > 18 or int(declared) > limit:
        raise too_large(limit)


def bounded(receive: Receive, limit: int) -> Receive:
    """Wrap the channel so that it raises `HttpProblem` at the first byte over the limit.

    Starlette's `RequestBodyLimitMiddleware` has one limit for each route, not one of the configuration as it is now.
    """
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise too_large(limit)
        return message

    return counted


def too_large(limit: int) -> HttpProblem:
    """Return the 413 for a body over the limit in bytes."""
    message = f"the body is over {limit} bytes; send less, or raise http.max_body"
    return HttpProblem(413, "body_too_large", message)


M = TypeVar("M", bound=BaseModel)


_LARGE_BODY = 64 * 1024


async def read_body(request: HostRequest) -> bytes:
    """Return the whole body. Raises `HttpProblem` at the first byte too many, `ClientDisconnect` if it ends early.

    Starlette's `request.body()` has no limit, and its generator costs 2.5 µs instead of 0.4 for a body in one message.
    """
    state: HostState = request.scope["state"]
    receive, limit = request.receive, state["max_body"]
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise too_large(limit)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def read_json(request: HostRequest, model: type[M], *, empty: bytes = b"") -> M:
    """Return the request's body as the model, `empty` for none. Raises `HttpProblem` and `ClientDisconnect`."""
    check_is_json(request)
    body = await read_body(request) or empty
    read = read_model(body, model)
    if len(body) > _LARGE_BODY:
        await sleep(0)  # what the loop is held for to read it, and to act on it, is not added up
    return read


def check_is_json(request: HostRequest) -> None:
    """Raise `HttpProblem` for a body whose Content-Type is not JSON."""
    state: HostState = request.scope["state"]
    given = state["headers"].get(b"content-type", _JSON)
    if given != _JSON and given.partition(b";")[0].strip().lower() != _JSON:
        message = "the body is read as JSON only; send Content-Type: application/json"
        raise HttpProblem(415, "unsupported_media_type", message, param="Content-Type")


def read_model(body: bytes, model: type[M]) -> M:
    """Validate the JSON text as the model. Raises `HttpProblem` with the first field at fault."""
    try:
        value = load_json(body)
    except InvalidJson as error:
        if error.duplicate_key:
            raise HttpProblem(400, "invalid_json", f"the body has the {error}; give it once") from None
        raise invalid_request(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        needed = ", ".join(
            f'"{field.alias or key}": …' for key, field in model.model_fields.items() if field.is_required()
        )
        raise invalid_request(f"the body is not a JSON object; send {{{needed}}}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _problem(error, model) from None


_UNION_MEMBER = "literal["
"""How the part of pydantic's location begins that names a member of a union; it is no key of the body."""


def _problem(error: ValidationError, model: type[BaseModel]) -> HttpProblem:
    first = error.errors(include_url=False, include_input=False, include_context=True)[0]
    where = tuple(part for part in first["loc"] if not str(part).startswith(_UNION_MEMBER))
    # such as `toolUpdates.added[3]`
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).removeprefix(".")
    if first["type"] == "extra_forbidden":
        shown = field[:100]
        near = name_hint(str(where[-1]), _known(model, where[:-1]))
        return invalid_request(f"the body has no field {shown!r} ({near})", shown)
    if first["type"] == "missing":
        return invalid_request(f"the body lacks {field!r}", field)
    if where[:1] == ("arguments",):
        return invalid_request("'arguments' should be an object, or the JSON text of one", "arguments")
    right = right_shape(first)
    if not field:
        return invalid_request(own_text(first))
    return invalid_request(f"{field!r}: {own_text(first)}" if right is None else f"{field!r} should be {right}", field)


def _known(model: type[BaseModel], where: Iterable[int | str]) -> Iterable[str]:
    """Return the names of the fields that the model has at this location."""
    shapes = shapes_of(model)
    for part in where:
        shapes = shapes_at(shapes, part)
    return known_keys(models_in(shapes))
