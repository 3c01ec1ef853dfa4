"""JSON values on their way in and out: what is JSON, and what is not."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, cast

import orjson
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema, to_json

from toolplug.catalog.exact_json import MAX_INTEGER_DIGITS, TOO_LONG, load_json
from toolplug.errors import InvalidArguments, InvalidJson

_EMPTY: Mapping[str, object] = MappingProxyType({})


def as_object(value: object) -> Mapping[str, object]:
    """The value itself where it is a JSON object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else _EMPTY


MAX_ARGUMENT_DEPTH = 128

_PLAIN = frozenset({str, bool, type(None)})
_SCALARS = _PLAIN | {int}
_JSON_TYPES = frozenset({dict, list, str, int, float, bool, type(None)})
_TOO_MANY_DIGITS = 10**4300
"""Python's own limit for integers as text, and that of arguments."""
_ANY = SchemaSerializer(core_schema.any_schema())
_NOTHING_FOREIGN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class Json(NamedTuple):
    """A value as compact JSON text, and as Python objects of JSON's own types."""

    text: str
    value: object


def decoded(arguments: Mapping[str, object] | str | bytes) -> dict[str, object]:
    """The arguments as an object of the call's own: what a tool does to it reaches nobody else.

    Empty text is no arguments. Raises `InvalidArguments` when they are not JSON, not an object, or over 128 levels.
    """
    if isinstance(arguments, dict):
        for value in arguments.values():
            kind = type(value)
            if kind not in _SCALARS or (kind is int and not -TOO_LONG < cast("int", value) < TOO_LONG):
                break
        else:
            return arguments.copy()  # keys that are no text are the validator's to refuse
        text = _plain_json(arguments)
        if text is not None:
            return orjson.loads(text)  # a deep copy, three times faster than node by node
    elif not isinstance(arguments, Mapping):
        value = _parsed(arguments)
        if _plain_json(value) is not None:
            return value
        arguments = value
    return _copied_object(cast("Mapping[object, object]", arguments), "", 1)


def check_integers(arguments: Mapping[str, object]) -> None:
    """Raise `InvalidArguments` for an integer with too many digits among the arguments, which are scalars."""
    for name, value in arguments.items():
        if type(value) is int and not -TOO_LONG < value < TOO_LONG:
            raise _too_long(f"/{name}")


def encoded(value: object) -> str | None:
    """Compact JSON text of a value, or None when it is not JSON."""
    json_value = as_json(value)
    return None if json_value is None else json_value.text


def as_json(value: object) -> Json | None:
    """A tool's result as JSON, or None when it is not JSON (bytes, generator, NaN, a cycle).

    Every other type is as pydantic serialises it: models, dataclasses, dates, `Decimal`, `Path`, sets; keys become
    text. A value made of JSON's own types stays the same object.
    """
    try:
        text = orjson.dumps(value, option=_NOTHING_FOREIGN)
    except (TypeError, RecursionError):
        return _encoded_slowly(value)
    if _has_null(text) and not _finite(value):
        return None
    return Json(text.decode(), value if type(value) in _JSON_TYPES else orjson.loads(text))


def _parsed(arguments: str | bytes) -> dict[str, object]:
    try:
        text = arguments.encode() if isinstance(arguments, str) else arguments
        value = load_json(text or b"{}")
    except InvalidJson as error:
        why = str(error) if error.duplicate_key else f"not JSON: {error}"
        raise InvalidArguments([f"/: {why}"]) from None
    except UnicodeEncodeError:
        raise InvalidArguments(["/: not JSON: a lone surrogate"]) from None
    except TypeError:
        raise InvalidArguments(["/: neither an object nor its JSON text"]) from None
    if not isinstance(value, dict):
        raise InvalidArguments([f"/: not an object but {_kind(value)}"])
    return cast("dict[str, object]", value)


def _plain_json(arguments: dict[str, object]) -> bytes | None:
    """Their JSON; None where only a look at each node tells what is not JSON, too deep, or an integer over 64 bits."""
    try:
        text = orjson.dumps(arguments, option=_NOTHING_FOREIGN)
    except (TypeError, RecursionError):
        return None
    if text.count(b"{") + text.count(b"[") > MAX_ARGUMENT_DEPTH or _has_null(text):
        return None
    return text


def _has_null(text: bytes) -> bool:
    """May a null stand in the JSON: one that was None, or one that was NaN."""
    return text.rfind(b"null") >= 0  # from the end: CPython searches a short word three times faster that way


def canonical(value: object) -> bytes:
    """JSON with keys sorted, for digests; what is not JSON stands in it as its type and text."""
    return json.dumps(value, default=_represented, sort_keys=True, separators=(",", ":")).encode()


def _encoded_slowly(value: object) -> Json | None:
    """What orjson refuses or changes but JSON allows: foreign types, integers of more than 64 bits, foreign keys."""
    try:
        text = json.dumps(_plain(value, "", set()), ensure_ascii=False, separators=(",", ":"))
    except (NotJson, RecursionError):
        return None
    return Json(text, json.loads(text))


class NotJson(Exception):
    """The first part of a value that is not JSON: `type at /json/pointer`. Its cause is what a serializer raised."""

    def __init__(self, what: str, pointer: str) -> None:
        super().__init__(f"{what} at {pointer or '/'}")


def why_not_json(value: object) -> NotJson:
    """Explain a value for which `as_json` gives None."""
    try:
        _plain(value, "", set())
    except NotJson as error:
        return error
    except RecursionError:
        return NotJson(f"{type(value).__name__} of too many levels", "")
    return NotJson(type(value).__name__, "")  # its own code gave another answer this time


def _plain(value: object, pointer: str, parents: set[int]) -> object:
    """The value in JSON's own types, as pydantic serialises it. Raises `NotJson`, and what the value's own code does.

    Not pydantic's encoder for the whole value: it consumes generators, writes NaN as null, and takes bytes for UTF-8.
    `parents` are the ids of the values that hold this one.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, pointer, parents)
    if isinstance(value, str):
        return _plain_text(value, pointer)
    if isinstance(value, int):
        if abs(value) >= _TOO_MANY_DIGITS:
            raise NotJson("integer of more than 4,300 digits", pointer)
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(repr(float(value)), pointer)
        return value
    if id(value) in parents:
        raise NotJson("cycle", pointer)
    parents.add(id(value))
    try:
        return _plain_parts(value, pointer, parents)
    finally:
        parents.remove(id(value))


def _plain_parts(value: object, pointer: str, parents: set[int]) -> object:
    if isinstance(value, Mapping):
        named = [(_plain_key(key, pointer), item) for key, item in cast("Mapping[object, object]", value).items()]
    elif isinstance(value, list | tuple | set | frozenset | deque):
        items = enumerate(cast("Iterable[object]", value))
        return [_plain(item, f"{pointer}/{index}", parents) for index, item in items]
    elif is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__pydantic_serializer__"):
        named = [(item.name, getattr(value, item.name)) for item in fields(value)]
    elif isinstance(value, bytes | bytearray | Iterator):
        raise NotJson(type(cast("object", value)).__name__, pointer)
    else:
        return _plain(_serialised(value, pointer), pointer, parents)
    return {key: _plain(item, f"{pointer}/{_escaped(key)}", parents) for key, item in named}


def _serialised(value: object, pointer: str) -> object:
    """Pydantic's own serialisation of one value."""
    try:
        return value.model_dump(mode="json") if isinstance(value, BaseModel) else _ANY.to_python(value, mode="json")
    except (PydanticSerializationError, UnicodeDecodeError, ValueError) as error:
        what = "cycle" if "Circular reference" in str(error) else type(value).__name__
        raise NotJson(what, pointer) from error.__cause__


def _plain_text(text: str, pointer: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotJson("text with a lone surrogate", pointer) from None
    return text


def _plain_key(key: object, pointer: str) -> str:
    if isinstance(key, str) and not isinstance(key, Enum):
        return _plain_text(key, pointer)
    try:
        (text,) = cast("dict[str, None]", _ANY.to_python({key: None}, mode="json"))
    except PydanticSerializationError:
        raise NotJson(f"key of type {type(key).__name__}", pointer) from None
    return text


def _escaped(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _represented(value: object) -> object:
    try:
        return _serialised(value, "")
    except NotJson:
        return [type(value).__qualname__, repr(value)]


def _finite(value: object) -> bool:
    """Is no NaN or infinity in it: orjson writes them as null."""
    text = to_json(value, inf_nan_mode="constants")
    return (b"NaN" not in text and b"Infinity" not in text) or _walked_finite(value)


def _walked_finite(value: object) -> bool:
    """The same, where the words stand in a text: node by node."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, float):
            if not math.isfinite(node):
                return False
        elif isinstance(node, dict):
            stack.extend(cast("dict[object, object]", node).values())
        elif isinstance(node, list | tuple):
            stack.extend(cast("list[object]", node))
        elif isinstance(node, Enum):
            stack.append(node.value)
    return True


def _copied_object(value: Mapping[object, object], pointer: str, depth: int) -> dict[str, object]:
    if depth > MAX_ARGUMENT_DEPTH:
        raise InvalidArguments([f"/: more than {MAX_ARGUMENT_DEPTH} levels deep"])
    copy: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidArguments([f"{pointer or '/'}: not JSON: a key of type {type(key).__name__}"])
        copy[key] = item if type(item) in _PLAIN else _copied(item, f"{pointer}/{key}", depth + 1)
    return copy


def _copied(value: object, pointer: str, depth: int) -> object:
    if isinstance(value, Mapping):
        return _copied_object(cast("Mapping[object, object]", value), pointer, depth)
    if isinstance(value, list | tuple):
        if depth > MAX_ARGUMENT_DEPTH:
            raise InvalidArguments([f"/: more than {MAX_ARGUMENT_DEPTH} levels deep"])
        items = cast("list[object]", value)
        return [item if type(item) in _PLAIN else _copied(item, pointer, depth + 1) for item in items]
    if isinstance(value, int) and not -TOO_LONG < value < TOO_LONG:
        raise _too_long(pointer)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArguments([f"{pointer}: a number out of range; integers may have {MAX_INTEGER_DIGITS:,} digits"])
    if isinstance(value, str | int | float):
        return value
    raise InvalidArguments([f"{pointer}: not JSON: a value of type {type(value).__name__}"])


def _too_long(pointer: str) -> InvalidArguments:
    return InvalidArguments([f"{pointer}: an integer of more than {MAX_INTEGER_DIGITS:,} digits"])


def _kind(value: object) -> str:
    names: dict[type, str] = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "an array"}
    return names.get(type(value), "null")
