"""JSON values: reading arguments, encoding results, and explaining values that are not JSON."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple, cast

import orjson
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema, to_json

from toolplug.catalog.exact_json import (
    MAX_INTEGER_DIGITS,
    TOO_LARGE,
    TOO_SMALL,
    dump_json,
    load_json,
    without_collections,
)
from toolplug.catalog.schema_walk import pointer_part
from toolplug.catalog.validation.compiled import TOO_LARGE_TO_VALIDATE
from toolplug.catalog.validation.json_size import MAX_CONTAINERS, TooManyParts, load_within_limits
from toolplug.errors import InvalidArguments, InvalidJson

MAX_ARGUMENT_DEPTH = 128
_PLAIN = frozenset({str, bool, type(None)})
_SCALARS = _PLAIN | {int}
_JSON_TYPES = frozenset({dict, list, str, int, float, bool, type(None)})
# Possessive (`*+`): a text without an end must not be searched again from each of its characters.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_ONE_BRACKET = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_MAX_POINTED_BYTES = 64 * 1024
"""In a longer text, the error does not point to the part that is too deep or has a number out of range."""
_ANY = SchemaSerializer(core_schema.any_schema())
_NOTHING_FOREIGN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class Json(NamedTuple):
    """A value as compact JSON text, and as Python objects of JSON's own types."""

    text: str
    value: object


def decode_arguments(arguments: Mapping[str, object] | str | bytes) -> dict[str, object]:
    """Return a copy of the arguments as an object, or their JSON text decoded; empty text is no arguments.

    Raises `InvalidArguments` if they are not JSON, not an object, or have more than 128 levels or 65,536 containers.
    """
    if isinstance(arguments, dict):
        for value in arguments.values():
            if type(value) not in _SCALARS or (type(value) is int and not TOO_SMALL < value < TOO_LARGE):
                break
        else:
            return arguments.copy()  # the validator refuses keys that are not text
        text = _plain_json(arguments)
        if text is not None:
            with without_collections():
                return orjson.loads(text)  # a deep copy, three times faster than node by node
        if _is_json(arguments):
            return cast("dict[str, object]", load_json(dump_json(arguments)))
    elif not isinstance(arguments, Mapping):
        value = _parse(arguments)
        plain = _SCALARS.issuperset(map(type, value.values()))
        if plain or _plain_json(value) is not None or _is_json(value):
            return value
        if len(arguments) > _MAX_POINTED_BYTES:
            raise InvalidArguments([f"/: more than {MAX_ARGUMENT_DEPTH} levels deep, or a number out of range"])
        arguments = value
    return cast("dict[str, object]", _copy(arguments, "", 1))


def encode_value(value: object) -> str | None:
    """Return the compact JSON text of a value; None if it is not JSON."""
    json_value = as_json(value)
    return None if json_value is None else json_value.text


def as_json(value: object) -> Json | None:
    """Return a tool's result as JSON; None if it is not JSON (bytes, generator, NaN, a cycle).

    Other types are serialised as by pydantic: models, dataclasses, dates, `Decimal`, `Path`, sets; keys become text. A
    value of JSON's own types stays the same object. Raises what the value's own serializer raises.
    """
    try:
        text = orjson.dumps(value, option=_NOTHING_FOREIGN)
    except (TypeError, RecursionError):
        return _encoded_slowly(value)
    if _has_null(text) and not _finite(value):
        return None
    return Json(text.decode(), value if type(value) in _JSON_TYPES else orjson.loads(text))


def _parse(arguments: str | bytes) -> dict[str, object]:
    try:
        text = arguments.encode() if isinstance(arguments, str) else arguments
        value = load_within_limits(text or b"{}")
    except TooManyParts:
        raise InvalidArguments([TOO_LARGE_TO_VALIDATE]) from None
    except InvalidJson as error:
        why = str(error) if error.duplicate_key else f"not JSON: {error}"
        raise InvalidArguments([f"/: {why}"]) from None
    except UnicodeEncodeError:
        raise InvalidArguments(["/: not JSON: a lone surrogate"]) from None
    except (TypeError, AttributeError):
        raise InvalidArguments(["/: neither an object nor its JSON text"]) from None
    if not isinstance(value, dict):
        raise InvalidArguments([f"/: not an object but {_kind(value)}"])
    return cast("dict[str, object]", value)


def _plain_json(arguments: dict[str, object]) -> bytes | None:
    """Return their JSON; None if something may not be JSON, be too deep, or be an integer over 64 bits."""
    try:
        text = orjson.dumps(arguments, option=_NOTHING_FOREIGN)
    except (TypeError, RecursionError):
        return None
    if _check_parts(text) > MAX_ARGUMENT_DEPTH and not _is_shallow(text):
        return None
    if _has_null(text) and not _finite(arguments):
        return None
    return text


def _check_parts(text: bytes) -> int:
    """Return an upper bound of the number of objects and arrays. Raises `InvalidArguments` for too many."""
    brackets = _brackets(text)
    # Brackets in texts are counted first, since removing the texts takes longer than the count.
    if brackets > MAX_CONTAINERS and _brackets(_TEXT.sub(b"", text)) > MAX_CONTAINERS:
        raise InvalidArguments([TOO_LARGE_TO_VALIDATE])
    return brackets


def _brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _is_shallow(text: bytes) -> bool:
    """Return True if the JSON has at most 128 levels; False also if a text in it has unbalanced brackets."""
    brackets = text.translate(_ONE_BRACKET, _NO_BRACKETS)
    for _ in range(MAX_ARGUMENT_DEPTH):
        # Each round takes away the innermost level.
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return True
    return False


def _is_json(arguments: dict[str, object]) -> bool:
    """Check level by level that they are JSON within the limits, ten times as fast as node by node with pointers."""
    level: list[object] = [arguments]
    for _ in range(MAX_ARGUMENT_DEPTH):
        kinds = set(map(type, level))
        if not kinds <= _JSON_TYPES:
            return False
        if int in kinds and not all(TOO_SMALL < value < TOO_LARGE for value in level if type(value) is int):
            return False
        if float in kinds and not all(math.isfinite(value) for value in level if type(value) is float):
            return False
        objects = [cast("dict[object, object]", value) for value in level if type(value) is dict]
        arrays = [cast("list[object]", value) for value in level if type(value) is list]
        if not set(map(type, chain.from_iterable(objects))) <= {str}:
            return False
        level = [*chain.from_iterable(each.values() for each in objects), *chain.from_iterable(arrays)]
        if not level:
            return True
    return False


def _has_null(text: bytes) -> bool:
    """Return True if the JSON may have a null, which was None or NaN."""
    return text.rfind(b"null") >= 0  # from the end: CPython searches a short word three times faster that way


def canonical(value: object) -> bytes:
    """Return JSON with sorted keys, for digests; a value that is not JSON is represented by its type and `repr`."""
    return json.dumps(value, default=_represent, sort_keys=True, separators=(",", ":")).encode()


def _encoded_slowly(value: object) -> Json | None:
    """Encode what orjson refuses or changes: other types, integers of more than 64 bits, other keys."""
    try:
        text = json.dumps(_plain(value, "", set()), ensure_ascii=False, separators=(",", ":"))
    except (NotJson, RecursionError):
        return None
    return Json(text, json.loads(text))


class NotJson(Exception):
    """The first part of a value that is not JSON, as `type at /json/pointer`; the cause is its serializer's error."""

    def __init__(self, what: str, pointer: str) -> None:
        super().__init__(f"{what} at {pointer or '/'}")


def why_not_json(value: object) -> NotJson:
    """Return the reason why `as_json` returns None for a value."""
    try:
        _plain(value, "", set())
    except NotJson as error:
        return error
    except RecursionError:
        return NotJson(f"{type(value).__name__} of too many levels", "")
    return NotJson(type(value).__name__, "")  # its own serializer succeeded this time


def _plain(value: object, pointer: str, parents: set[int]) -> object:
    """Return the value in JSON's own types, as pydantic serialises it. Raises `NotJson` and errors of its serializer.

    Pydantic's encoder cannot take the whole value: it consumes generators, writes NaN as null, and reads bytes as
    UTF-8. `parents` are the ids of the values that contain this one.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, pointer, parents)
    if isinstance(value, str):
        return _plain_text(value, pointer)
    if isinstance(value, int):
        if not TOO_SMALL < value < TOO_LARGE:
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
        return _plain(_serialise(value, pointer), pointer, parents)
    return {key: _plain(item, pointer + pointer_part(key), parents) for key, item in named}


def _serialise(value: object, pointer: str) -> object:
    """Serialise one value by pydantic. Raises `NotJson`, from the error of the value's own serializer, if any."""
    try:
        # `model_dump` heeds the settings of the class, such as `serialize_by_alias`.
        return value.model_dump(mode="json") if isinstance(value, BaseModel) else _ANY.to_python(value, mode="json")
    except (PydanticSerializationError, UnicodeDecodeError, ValueError) as error:
        what = "cycle" if "Circular reference" in str(error) else type(value).__name__
        slip = " that was not awaited" if isinstance(value, Coroutine) else ""
        raise NotJson(f"{what}{slip}", pointer) from error.__cause__


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


def _represent(value: object) -> object:
    try:
        return _serialise(value, "")
    except NotJson:
        return [type(value).__qualname__, repr(value)]


def _finite(value: object) -> bool:
    """Return True if the value has no NaN or infinity, which orjson writes as null."""
    text = to_json(value, inf_nan_mode="constants")
    if b"NaN" in text or b"Infinity" in text:
        text = _TEXT.sub(b"", text)
    return b"NaN" not in text and b"Infinity" not in text


def _copy(value: object, pointer: str, depth: int) -> object:
    """Return a copy of arguments or a part of them. Raises `InvalidArguments` with its JSON pointer."""
    if depth > MAX_ARGUMENT_DEPTH and isinstance(value, Mapping | list | tuple):
        raise InvalidArguments([f"/: more than {MAX_ARGUMENT_DEPTH} levels deep"])
    if isinstance(value, Mapping):
        copy: dict[str, object] = {}
        for key, item in cast("Mapping[object, object]", value).items():
            if not isinstance(key, str):
                raise InvalidArguments([f"{pointer or '/'}: not JSON: a key of type {type(key).__name__}"])
            copy[key] = item if type(item) in _PLAIN else _copy(item, f"{pointer}/{key}", depth + 1)
        return copy
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return [item if type(item) in _PLAIN else _copy(item, pointer, depth + 1) for item in items]
    if isinstance(value, int) and not TOO_SMALL < value < TOO_LARGE:
        raise integer_too_long(pointer)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArguments([f"{pointer}: a number out of range; integers may have {MAX_INTEGER_DIGITS:,} digits"])
    if isinstance(value, str | int | float):
        return value
    raise InvalidArguments([f"{pointer}: not JSON: a value of type {type(value).__name__}"])


def integer_too_long(pointer: str) -> InvalidArguments:
    """Return the error for an integer of more than 4,300 digits at this JSON pointer."""
    return InvalidArguments([f"{pointer}: an integer of more than {MAX_INTEGER_DIGITS:,} digits"])


def _kind(value: object) -> str:
    names: dict[type, str] = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "an array"}
    return names.get(type(value), "null")
