"""Exact JSON: integers of up to 4,300 digits are read and written exactly, and duplicate keys are errors.

orjson reads an integer over 64 bits as a float, refuses to write one, and takes the last of two equal keys. jiter, the
parser inside pydantic, is exact; with its check of keys it takes 4.4 µs a KB where orjson takes 1.9, so texts that only
this host writes are still read by orjson.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any, Final, cast

import orjson
from jiter import from_json
from pydantic import with_config
from typing_extensions import TypedDict

from toolplug.catalog.call import EMPTY
from toolplug.errors import InvalidJson

MAX_INTEGER_DIGITS: Final = 4_300
"""Python itself neither reads nor writes longer integers, since the work grows with the square of their length."""

TOO_LARGE: Final = 10**MAX_INTEGER_DIGITS
TOO_SMALL: Final = -TOO_LARGE
"""The first integers of either sign that have too many digits."""


@with_config(extra="forbid")
class Answer(TypedDict):
    """Base of the JSON objects that the host answers with: pyright checks their keys, OpenAPI describes them.

    Answers are dictionaries, not pydantic models: one of nine fields takes 0.4 µs to create and encode, a model 4.8.
    """


# One of fewer digits fits into 64 bits, which orjson reads and writes exactly.
_LONG_INTEGER = re.compile(rb"[0-9]{19}")

_MAX_LEVELS = 160
"""jiter reads 200; arguments may have 128, inside a request."""

_MAX_REWRITTEN_BYTES = 64 * 1024
"""A longer text with a number out of range is refused: rewriting takes up to 0.3 ms a KB."""

_MAX_COLLECTED_BYTES = 64 * 1024

_OUT_OF_RANGE = b"1e999"
"""Reads as infinity, which no JSON value is."""

# Texts come first, so that brackets inside them do not count. The possessive quantifiers keep a text that is not closed
# from being read again and again.
_TOKEN = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
    rb"|(?P<long>-?[0-9]{%d,}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    rb"|(?P<opens>[\[{])|(?P<closes>[\]}])" % (MAX_INTEGER_DIGITS + 1),
    re.DOTALL,
)


def load_json(text: bytes) -> object:
    """Return the value of a JSON text. Raises `InvalidJson`.

    A number out of range (1e999, an integer of more than 4,300 digits) and a part below 160 levels become infinity, so
    that the reader of arguments or results can refuse it with its place. In a text over 64 KiB they raise.
    """
    try:
        return _parse(text)
    except ValueError as error:
        message = str(error)
        # The texts of jiter are its only error codes.
        if not message.startswith(("number out of range", "recursion limit exceeded")):
            raise _invalid(message) from None
    if len(text) > _MAX_REWRITTEN_BYTES:
        raise InvalidJson(message)
    try:
        return _parse(_within_range(text))
    except ValueError as error:
        raise _invalid(str(error)) from None


def dump_json(value: object) -> bytes:
    """Return the compact JSON of a value of JSON's own types. Raises `TypeError` or `ValueError` for other values.

    A number that is not finite becomes null.
    """
    try:
        # Much faster than `json`, which only integers over 64 bits need.
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if "NaN" in text or "Infinity" in text:
        # `json` writes such numbers by names, which are no JSON; in a text of the value they stay.
        text = json.dumps(_without_names(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _without_names(value: object) -> object:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_names(each) for key, each in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_without_names(each) for each in cast("list[object]", value)]
    return value


def load_own_json(text: bytes) -> Any:
    """Return the value of JSON that this host has written, exactly: by orjson, if there is no long integer in it."""
    return load_json(text) if _LONG_INTEGER.search(text) else orjson.loads(text)


def _parse(text: bytes) -> object:
    if len(text) <= _MAX_COLLECTED_BYTES:
        return from_json(text, allow_inf_nan=False, catch_duplicate_keys=True)
    # Each array and object is a container for the collector, which walks all of them again and again while they grow.
    with without_collections():
        return from_json(text, allow_inf_nan=False, catch_duplicate_keys=True)


@contextmanager
def without_collections() -> Generator[None]:
    """Pause Python's garbage collector: a mebibyte of empty arrays then takes 30 ms to read instead of 170."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_DUPLICATE = re.compile(r'Detected (duplicate key ".*") at line [0-9]+ column [0-9]+', re.DOTALL)


def _invalid(message: str) -> InvalidJson:
    duplicate = _DUPLICATE.fullmatch(message)
    if duplicate is None:
        return InvalidJson(message)
    key = duplicate[1]
    return InvalidJson(key if len(key) <= 100 else f'{key[:96]}…"', duplicate_key=True)


def _within_range(text: bytes) -> bytes:
    """Return the text with infinity in place of the parts that jiter does not read."""
    kept: list[bytes] = []
    level = end = 0
    for token in _TOKEN.finditer(text):
        if token["closes"]:
            level -= 1
            if level == _MAX_LEVELS:
                end = token.end()
        # Below the deepest level that jiter reads, a whole part becomes one infinity.
        elif token["opens"]:
            if level == _MAX_LEVELS:
                kept += [text[end : token.start()], _OUT_OF_RANGE]
            level += 1
        elif token["long"] and level <= _MAX_LEVELS:
            kept += [text[end : token.start()], _OUT_OF_RANGE]
            end = token.end()
    if level <= _MAX_LEVELS:
        kept.append(text[end:])
    return b"".join(kept)


def as_object(value: object) -> Mapping[str, object]:
    """Return the value itself if it is a JSON object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else EMPTY


def as_list(value: object) -> list[object]:
    """Return the value itself if it is a JSON array, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []
