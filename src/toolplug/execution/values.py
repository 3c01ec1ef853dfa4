"""Arguments on their way in, results on their way out: what is JSON and what is not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import cast

import orjson
from pydantic import BaseModel

from toolplug.errors import InvalidArguments

NOT_JSON = object()


def decoded(arguments: Mapping[str, object] | str | bytes) -> dict[str, object]:
    """The arguments as an object; raises `InvalidArguments` when they are not the JSON of one."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    try:
        value = orjson.loads(arguments or b"{}")
    except orjson.JSONDecodeError as error:
        raise InvalidArguments([f"/: not JSON: {error.msg} at character {error.pos}"]) from None
    if not isinstance(value, dict):
        raise InvalidArguments([f"/: not an object but {_kind(value)}"])
    return cast("dict[str, object]", value)


def encoded(value: object) -> str | None:
    """Compact JSON text of a tool's result, or None when it is not JSON (bytes, generator, NaN, a cycle)."""
    try:
        text = orjson.dumps(value, default=_dumped)
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        return _encoded_slowly(value)
    if b"null" in text and not _finite(value):
        return None
    return text.decode()


def plain(value: object, text: str) -> object:
    """The value itself where it is made of JSON's own types at the top, else what its text says."""
    return value if value is None or type(value) in _JSON_TYPES else orjson.loads(text)


_JSON_TYPES = frozenset({dict, list, str, int, float, bool})


def _encoded_slowly(value: object) -> str | None:
    """What orjson refuses but JSON allows: integers of more than 64 bits, keys that are numbers."""
    try:
        text = json.dumps(value, default=_dumped, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return text


def _dumped(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


def _finite(value: object) -> bool:
    """Is no NaN or infinity in it: orjson writes them as null."""
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
        elif isinstance(node, BaseModel):
            stack.append(node.model_dump())
        elif is_dataclass(node):
            stack.extend(getattr(node, item.name) for item in fields(node))
    return True


def _kind(value: object) -> str:
    names: dict[type, str] = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "an array"}
    return names.get(type(value), "null")
