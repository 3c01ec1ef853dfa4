"""Request bodies: refused over their limit, by the declared length or while they are read, and validated as JSON.

The items of a large body, counted before pydantic sees them: it reports every one that is wrong, 5 µs each.

60,000 unknown keys, or as many texts in a list of numbers, hold the loop for 0.1 to 0.6 s, only to name the first.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Self, cast

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope
from typing_extensions import TypeVar

from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.catalog.validation.json_size import JsonSize, load_measured, measure
from toolplug.config.nearest import name_hint
from toolplug.config.problems import Shapes, field_keys, known_keys, models_in, shapes_at, shapes_of
from toolplug.config.units import own_text, right_shape
from toolplug.errors import InvalidJson
from toolplug.http.bodies.body_memory import UnfinishedBody
from toolplug.http.errors import NOSNIFF, HttpProblem, invalid_request
from toolplug.http.requests import HostRequest, HostState, key_of

Place = tuple[int | str, ...]
"""Where a part of a body is, as pydantic's `loc` has it."""


class TooMany(NamedTuple):
    """A list or mapping with more items than its field may have."""

    at: Place
    most: int


class UnknownKey(NamedTuple):
    """A key that the model there does not have."""

    at: Place


def fault_in(value: object, shapes: Shapes, at: Place = ()) -> TooMany | UnknownKey | None:
    """Return the first list or mapping of a body with too many items, or the first unknown key; None without one."""
    if isinstance(value, dict):
        return _fault_in_object(cast("dict[str, object]", value), shapes, at)
    if isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            inner = shapes_at(shapes, index)
            if not models_in(inner):
                break  # what is no model is not looked at by pydantic, or is of one type
            fault = fault_in(item, inner, (*at, index))
            if fault is not None:
                return fault
    return None


def _fault_in_object(value: dict[str, object], shapes: Shapes, at: Place) -> TooMany | UnknownKey | None:
    models = models_in(shapes)
    if not models:
        return None
    known = frozenset(known_keys(models))
    unknown = next((key for key in value if key not in known), None)
    if unknown is not None and all(model.model_config.get("extra") == "forbid" for model in models):
        return UnknownKey((*at, unknown))
    for key in known & value.keys():
        item = value[key]
        if not isinstance(item, dict | list):
            continue
        most = min(_most_items(models, key), default=None)
        if most is not None and len(cast("list[object]", item)) > most:
            return TooMany((*at, key), most)
        fault = fault_in(cast("object", item), shapes_at(shapes, key), (*at, key))
        if fault is not None:
            return fault
    return None


def _most_items(models: tuple[type[BaseModel], ...], key: str) -> Iterator[int]:
    for model in models:
        for name, field in model.model_fields.items():
            if key in field_keys(model, name, field):
                yield from (limit.max_length for limit in field.metadata if isinstance(limit, MaxLen))


class CamelBody(BaseModel):
    """A body: closed, frozen, and without conversions that a client would not expect."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=False, defer_build=True
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


class BoundedChannel:
    """A channel that raises `HttpProblem` at the first byte over the limit or over `http.edge.body_memory`.

    Starlette's `RequestBodyLimitMiddleware` has one limit for each route, not one of the configuration as it is now.
    What has arrived counts as unfinished until the last byte or the end of the block.
    """

    __slots__ = ("_held", "_limit", "_receive", "_scope", "_size", "_state")

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._scope = scope
        self._state: HostState = scope["state"]  # the handler gets another
        self._receive = receive
        self._limit = limit
        self._size = 0
        self._held: UnfinishedBody | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.release()

    async def __call__(self) -> Message:
        """Receive one ASGI message."""
        message = await self._receive()
        arrived = len(message.get("body", b""))
        self._size += arrived
        if self._size > self._limit:
            raise too_large(self._limit)
        if message.get("more_body", False):
            if self._held is None:
                self._held = UnfinishedBody(self._state["bodies"], key_of(self._scope, self._state))
            self._held.count(arrived)
        elif self._held is not None:
            self._held.release()
        return message


def too_large(limit: int) -> HttpProblem:
    """Return the 413 for a body over the limit in bytes."""
    message = f"the body is over {limit} bytes; send less, or raise http.max_body"
    return HttpProblem(413, "body_too_large", message)


M = TypeVar("M", bound=BaseModel)
Fields = dict[str, object]
"""The members of a body."""

_LARGE_BODY = 64 * 1024


async def read_body(request: HostRequest) -> bytes:
    """Return the whole body. Raises `HttpProblem` at the first byte too many, `ClientDisconnect` if it ends early.

    Starlette's `request.body()` has no limit, and its generator costs 2.5 µs instead of 0.4 for a body in one message.
    Bodies in several messages count for `http.edge.body_memory`, which raises `HttpProblem` and `QuotaExceeded`.
    """
    state: HostState = request.scope["state"]
    receive, limit = request.receive, state["max_body"]
    chunk, more = _chunk(await receive())
    if len(chunk) > limit:
        raise too_large(limit)
    if not more:
        return chunk
    size = len(chunk)
    with UnfinishedBody(state["bodies"], key_of(request.scope, state)) as body:
        await body.add(chunk)
        while more:
            chunk, more = _chunk(await receive())
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
            await body.add(chunk)
        return await body.content()


def _chunk(message: Message) -> tuple[bytes, bool]:
    """Return the next bytes of the body, and whether more follow. Raises `ClientDisconnect`."""
    if message["type"] != "http.request":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def read_json(
    request: HostRequest, model: type[M], *, empty: bytes = b"", check: Callable[[Fields], None] | None = None
) -> M:
    """Return the request's body as the model, `empty` for none. `check` is called with the fields before the model is.

    Raises `HttpProblem`, `QuotaExceeded`, `ClientDisconnect` and what `check` raises.
    """
    check_is_json(request)
    body = await read_body(request) or empty
    if len(body) <= _LARGE_BODY:
        return read_model(body, model, check)
    fields = await _large_fields(body, model)
    await sleep(0)  # the loop is held for each step, not for the sum of them and of what comes next
    if check is not None:
        check(fields)
    _check_items(fields, model)
    read = _validate(fields, model)
    await sleep(0)
    return read


async def read_arguments(request: HostRequest) -> bytes | Fields:
    """Return the body as the arguments of a tool, empty for none: text, which its call reads, or a large object.

    Raises `HttpProblem`, `QuotaExceeded` and `ClientDisconnect`; a text that is no object is an error of the call.
    """
    check_is_json(request)
    body = await read_body(request)
    if len(body) <= _LARGE_BODY:
        return body
    size = await check_parts(body)
    try:
        value = await load_measured(body, size)
    except InvalidJson:
        return body
    await sleep(0)  # as in `read_json`
    return cast("Fields", value) if isinstance(value, dict) else body


async def check_parts(body: bytes) -> JsonSize:
    """Return the size of a JSON text. Raises `HttpProblem` if its parts are more than one step of the loop can read."""
    size = await measure(body)
    if size.excess is not None and _may_be_json(body[: _LARGE_BODY + 1]):
        raise too_many(f"the body has more than {size.excess}; send less at a time")
    return size


async def _large_fields(body: bytes, model: type[BaseModel]) -> Fields:
    """Do the same as `_fields` for a large body."""
    size = await check_parts(body)
    try:
        return _object(await load_measured(body, size), model)
    except InvalidJson as error:
        raise _no_json(error) from None


def _may_be_json(beginning: bytes) -> bool:
    """Return False if reading the whole text would stop in its beginning: then its error says more."""
    try:
        load_json(beginning)
    except InvalidJson as error:
        return str(error).startswith("EOF")
    return True


def too_many(message: str, param: str | None = None) -> HttpProblem:
    """Return the 422 for a list, a mapping or a body with too many items."""
    return HttpProblem(422, "too_many", message, param=param)


def check_is_json(request: HostRequest) -> None:
    """Raise `HttpProblem` for a body whose Content-Type is not JSON."""
    state: HostState = request.scope["state"]
    given = state["headers"].get(b"content-type", _JSON)
    if given != _JSON and given.partition(b";")[0].strip().lower() != _JSON:
        message = "the body is read as JSON only; send Content-Type: application/json"
        raise HttpProblem(415, "unsupported_media_type", message, param="Content-Type")


def read_model(body: bytes, model: type[M], check: Callable[[Fields], None] | None = None) -> M:
    """Return a short JSON text as the model. Raises `HttpProblem` with the first field at fault."""
    fields = _fields(body, model)
    if check is not None:
        check(fields)
    return _validate(fields, model)


def validate_fields(fields: Fields, model: type[M]) -> M:
    """Return the fields of a body as the model. Raises `HttpProblem` with the first field at fault."""
    _check_items(fields, model)
    return _validate(fields, model)


def _fields(body: bytes, model: type[BaseModel]) -> Fields:
    try:
        return _object(load_json(body), model)
    except InvalidJson as error:
        raise _no_json(error) from None


def _no_json(error: InvalidJson) -> HttpProblem:
    if error.duplicate_key:
        return HttpProblem(400, "invalid_json", f"the body has the {error}; give it once")
    return invalid_request(f"the body is not JSON: {error}")


def _object(value: object, model: type[BaseModel]) -> Fields:
    if not isinstance(value, dict):
        needed = ", ".join(
            f'"{field.alias or key}": …' for key, field in model.model_fields.items() if field.is_required()
        )
        raise invalid_request(f"the body is not a JSON object; send {{{needed}}}")
    return cast("Fields", value)


def _validate(fields: Fields, model: type[M]) -> M:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=True)[0]
        raise _problem(first, fields, model) from None


def _check_items(fields: Fields, model: type[BaseModel]) -> None:
    """Raise `HttpProblem` for a large body with an unknown key, or with a list or mapping of too many items."""
    fault = fault_in(fields, (model,))
    if isinstance(fault, TooMany):
        raise _too_many_items(fault.at, fault.most)
    if fault is not None:
        raise _unknown_field(fault.at, model)


_SHOWN = 100


def _problem(first: ErrorDetails, fields: Fields, model: type[BaseModel]) -> HttpProblem:
    where = _place(first, fields)
    field = _path(where)
    if first["type"] == "extra_forbidden":
        return _unknown_field(where, model)
    if first["type"] == "missing":
        return invalid_request(f"the body lacks {field!r}", field)
    if first["type"] == "too_long":
        return _too_many_items(where, first.get("ctx", {})["max_length"])
    if where[:1] == ("arguments",):
        return invalid_request("'arguments' should be an object, or the JSON text of one", "arguments")
    right = right_shape(first)
    if not field:
        return invalid_request(own_text(first))
    return invalid_request(f"{field!r}: {own_text(first)}" if right is None else f"{field!r} should be {right}", field)


def _place(error: ErrorDetails, value: object) -> Place:
    """Return an error's location in the body.

    Pydantic's location also has the names of members of a union, such as `dict[str,any]`, which are no keys.
    """
    place: list[int | str] = []
    for part in error["loc"]:
        if isinstance(value, Mapping) and part in value:
            value = cast("Mapping[object, object]", value)[part]
        elif isinstance(value, list) and isinstance(part, int):
            value = cast("list[object]", value)[part]
        elif place and (error["type"] != "missing" or part != error["loc"][-1]):
            continue
        place.append(part)
    return tuple(place)


def _path(where: Iterable[int | str]) -> str:
    """Return a place in the body as text, such as `toolUpdates.added[3]`; keys are the client's, and may be long."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:_SHOWN]}" for part in where)
    return path.removeprefix(".")


def _unknown_field(where: Place, model: type[BaseModel]) -> HttpProblem:
    shown = _path(where)[:_SHOWN]
    near = name_hint(str(where[-1]), _list_known(model, where[:-1]))
    return invalid_request(f"the body has no field {shown!r} ({near})", shown)


def _too_many_items(where: Place, most: int) -> HttpProblem:
    field = _path(where)
    return too_many(f"{field!r} may have at most {most:,} items; send fewer", field)


def _list_known(model: type[BaseModel], where: Iterable[int | str]) -> Iterable[str]:
    """Return the names of the fields that the model has at this location."""
    shapes = shapes_of(model)
    for part in where:
        shapes = shapes_at(shapes, part)
    return known_keys(models_in(shapes))
