"""Exact JSON: integers of up to 4,300 digits both ways, and no duplicate keys.

orjson reads an integer over 64 bits as a float, refuses to write one, and takes the last of two equal keys. jiter, the
parser inside pydantic, is exact; with its check of keys it takes 4.4 µs a KB where orjson takes 1.9, so texts that only
this host writes are still read by orjson.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import orjson
from jiter import from_json
from pydantic import with_config
from typing_extensions import TypedDict

from toolplug.errors import InvalidJson

MAX_INTEGER_DIGITS: Final = 4_300
"""Python itself neither reads nor writes longer integers, since the work grows with the square of their length."""

TOO_LARGE: Final = 10**MAX_INTEGER_DIGITS
TOO_SMALL: Final = -TOO_LARGE
"""The first integers of either sign that have too many digits."""


@with_config(extra="forbid")
class Answer(TypedDict):
    """A JSON object that the host answers with, and nothing but its keys: pyright checks it, OpenAPI describes it.

    Answers are dictionaries, not pydantic models: one of nine fields costs 0.4 µs to make and to write, a model 4.8.
    """


_MAX_LEVELS = 160
"""jiter reads 200; arguments may have 128, with a request around them."""

_MAX_REWRITTEN_BYTES = 64 * 1024
"""A longer text is refused at once: rewriting takes up to 0.3 ms a KB."""

_MAX_COLLECTED_BYTES = 64 * 1024

_OUT_OF_RANGE = b"1e999"
"""Reads as infinity, which no JSON value is."""

_TOKEN = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
    rb"|(?P<long>-?[0-9]{%d,}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    rb"|(?P<opens>[\[{])|(?P<closes>[\]}])" % (MAX_INTEGER_DIGITS + 1),
    re.DOTALL,
)


def load_json(text: bytes) -> object:
    """The value of a JSON text. Raises `InvalidJson`.

    A number out of range (1e999, an integer of more than 4,300 digits) and what is more than 160 levels deep become
    infinity: whoever takes arguments or results refuses that, and can say where it is.
    """
    try:
        return _parsed(text)
    except ValueError as error:
        message = str(error)
        if not message.startswith(("number out of range", "recursion limit exceeded")):
            raise _invalid(message) from None
    if len(text) > _MAX_REWRITTEN_BYTES:
        raise InvalidJson(message)
    try:
        return _parsed(_within_range(text))
    except ValueError as error:
        raise _invalid(str(error)) from None


def dump_json(value: object) -> bytes:
    """The compact JSON of a value that `load_json` may have given. Raises `TypeError` and `ValueError` for others."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _parsed(text: bytes) -> object:
    if len(text) <= _MAX_COLLECTED_BYTES:
        return from_json(text, allow_inf_nan=False, catch_duplicate_keys=True)
    with without_collections():
        return from_json(text, allow_inf_nan=False, catch_duplicate_keys=True)


@contextmanager
def without_collections() -> Generator[None]:
    """Keep Python's garbage collector from searching a large value again and again while it is built.

    A mebibyte of empty arrays takes 30 ms to read instead of 170.
    """
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
    return InvalidJson(message) if duplicate is None else InvalidJson(_cut(duplicate[1]), duplicate_key=True)


def _cut(message: str) -> str:
    return message if len(message) <= 100 else f'{message[:96]}…"'


def _within_range(text: bytes) -> bytes:
    """The same text with infinity in place of what jiter does not read."""
    kept: list[bytes] = []
    level = end = 0
    for token in _TOKEN.finditer(text):
        if token["closes"]:
            level -= 1
            if level == _MAX_LEVELS:
                end = token.end()
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
