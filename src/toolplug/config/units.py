"""The values of a configuration: durations, sizes and rates as text (`20s`, `200KiB`, `60/minute`), their validation,
the base of all sections, and pydantic's errors in plain words: phrases that complete the sentence `should be …`. Times
of logs, audit lines, answers and tables are written here too.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

DEFAULT_ORIGIN = "default"
"""The origin of a setting that no file has."""

SHAPE_ERROR = "shape"


def shape_error(shape: str) -> PydanticCustomError:
    """Return a `ValueError` with the text `should be <shape>`; a shape must not contain the value."""
    return PydanticCustomError(SHAPE_ERROR, "should be {shape}", {"shape": shape})


_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)(?P<unit>ms|s|m|h)?")
_MAX_WHOLE = 10**15  # beyond it a float is no longer written shortest as a whole number
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_SIZE = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>KiB|MiB)?")
_BYTES = {"KiB": 1024, "MiB": 1024 * 1024}
_RATE = re.compile(r"(?P<count>[0-9]{1,18})/(?P<unit>second|minute|hour)")
_RATE_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}

_DURATION_SHAPE = "a duration such as 500ms, 20s, 5m or 1h, or a number of seconds"
_SIZE_SHAPE = "a size such as 200KiB or 1MiB, or a whole number of bytes"
_RATE_SHAPE = "a rate such as 5/second, 60/minute or 1000/hour"


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` things in every `per_s` seconds."""

    count: int
    per_s: float


def parse_duration(value: object) -> float:
    """Return seconds. Raises `ValueError` for anything but a finite duration of at least 0."""
    seconds = math.inf
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        seconds = float(value)
    elif isinstance(value, str) and len(value) <= 300 and (found := _DURATION.fullmatch(value)):
        number = float(found["number"])
        seconds = number / 1000 if found["unit"] == "ms" else number * _SECONDS[found["unit"] or "s"]
    if not 0 <= seconds < math.inf:
        raise shape_error(_DURATION_SHAPE)
    return seconds


def parse_size(value: object) -> int:
    """Return bytes. Raises `ValueError` for anything but a size of at least 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (found := _SIZE.fullmatch(value)):
        return int(found["number"]) * _BYTES.get(found["unit"], 1)
    raise shape_error(_SIZE_SHAPE)


def parse_rate(value: object) -> Rate:
    """Return the rate. Raises `ValueError` for anything but a rate of at least 1."""
    if isinstance(value, Rate):
        return value
    if isinstance(value, str) and (found := _RATE.fullmatch(value)) and int(found["count"]):
        return Rate(int(found["count"]), _RATE_SECONDS[found["unit"]])
    raise shape_error(_RATE_SHAPE)


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as ISO 8601 in UTC, with milliseconds: `2026-11-24T14:30:00.250Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_duration(seconds: float) -> str:
    """Write seconds in the largest unit that divides them; `parse_duration` reads the same number back."""
    for unit, scale in (("h", 3600), ("m", 60), ("s", 1)):
        whole = int(seconds // scale)
        if whole * scale == seconds and whole < _MAX_WHOLE and (whole or unit == "s"):
            return f"{whole}{unit}"
    milliseconds = round(seconds * 1000) if seconds < _MAX_WHOLE else 0
    return f"{milliseconds}ms" if milliseconds / 1000 == seconds else f"{seconds!r}s"


def format_size(size: int) -> str:
    """Write bytes in the largest unit that divides them; `parse_size` reads the same number back."""
    for unit in ("MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return str(size)


def format_rate(rate: Rate) -> str:
    """Write a rate as `60/minute`; a window without a name as a duration."""
    for unit, seconds in _RATE_SECONDS.items():
        if rate.per_s == seconds:
            return f"{rate.count}/{unit}"
    return f"{rate.count}/{format_duration(rate.per_s)}"


def _schema(number: str, pattern: str, description: str) -> WithJsonSchema:
    kinds = [{"type": number, "minimum": 0}, {"type": "string", "pattern": pattern}]
    return WithJsonSchema({"anyOf": kinds, "description": description})


Duration = Annotated[
    float, BeforeValidator(parse_duration), _schema("number", r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)?$", _DURATION_SHAPE)
]
"""Seconds, written as a duration or a number."""

Size = Annotated[int, BeforeValidator(parse_size), _schema("integer", r"^[0-9]+(KiB|MiB)?$", _SIZE_SHAPE)]
"""Bytes, written as a size or a whole number."""

RateLimit = Annotated[
    Rate,
    BeforeValidator(parse_rate),
    WithJsonSchema({"type": "string", "pattern": r"^0*[1-9][0-9]*/(second|minute|hour)$", "description": _RATE_SHAPE}),
]
"""A `Rate`, written as `60/minute`."""


class FileMapping(BaseModel):
    """A mapping of the file: frozen, without unknown keys and without implicit conversions.

    `elsewhere` has the place, as a hint, of keys that people write here and that are set in another way.

    ```python
    from toolplug.config import Duration, FileMapping

    class Section(FileMapping):
        pause: Duration = 10.0

    assert Section.model_validate({"pause": "2m"}).pause == 120.0
    ```
    """

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType({})
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


_TYPES_BY_PHRASE = {
    "{shape}": (SHAPE_ERROR,),
    "true or false (without quotes)": ("bool_type", "bool_parsing"),
    "a whole number": ("int_type", "int_parsing", "int_parsing_size", "int_from_float"),
    "a number": ("float_type", "float_parsing", "decimal_type", "decimal_parsing"),
    "a number that is not infinite": ("finite_number",),
    "text": ("string_type", "string_sub_type", "bytes_type"),
    "the path of a file": ("path_type",),
    "empty": ("none_required",),
    "a mapping of keys": ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"),
    "a list": ("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"),
    "{expected}": ("literal_error", "enum"),
    "greater than {gt}": ("greater_than",),
    "at least {ge}": ("greater_than_equal",),
    "less than {lt}": ("less_than",),
    "at most {le}": ("less_than_equal",),
    "a multiple of {multiple_of}": ("multiple_of",),
    "text of at least {min_length} characters": ("string_too_short",),
    "text of at most {max_length} characters": ("string_too_long",),
    "text that matches {pattern}": ("string_pattern_mismatch",),
    "{min_length} or more entries": ("too_short",),
    "{max_length} entries or fewer": ("too_long",),
    "a URL such as https://example.com/path": ("url_type", "url_parsing", "url_syntax_violation"),
    "a URL that begins with {expected_schemes}": ("url_scheme",),
    "a mapping whose key {discriminator} is one of {expected_tags}": ("union_tag_invalid",),
    "a mapping that has the key {discriminator}": ("union_tag_not_found",),
}
_PHRASES = {error_type: phrase for phrase, types in _TYPES_BY_PHRASE.items() for error_type in types}

_BOUNDS = {"gt", "ge", "lt", "le"}
_PATTERNS = {
    "^https?://": "a URL that begins with http:// or https://",
    "^[a-z][a-z0-9_-]{0,31}$": "a lower-case letter, then up to 31 of a-z 0-9 _ -",
    "^[0-9a-f]{64}$": "64 of 0-9 a-f, as `toolplug keys new` prints them",
    "^(/[a-z0-9_-]+)+$": "a path such as /handbook, of a-z 0-9 _ - after each /",
    "^[a-zA-Z_][a-zA-Z0-9_]{0,63}$": "a letter or _, then up to 63 of A-Z a-z 0-9 _",
    "^[A-Za-z0-9-]{1,64}$": "the name of a header, of up to 64 letters, digits and -",
    "^credential:[a-z0-9][a-z0-9-]{0,63}$": "credential: and a name of a-z 0-9 -",
}
"""Patterns of the settings for which there are words."""


def right_shape(error: ErrorDetails, written: object = None) -> str | None:
    """Return a phrase for a valid value, or None for an error that only its own text describes.

    `written` is the value as the file has it: a bound is told in its units.
    """
    phrase, given = _PHRASES.get(error["type"]), error.get("ctx", {})
    in_words = _PATTERNS.get(given.get("pattern", ""))
    if phrase is None or in_words:
        return in_words
    if written not in (None, "true", "false"):
        phrase = phrase.removesuffix(" (without quotes)")
    return phrase.format_map(given | {name: _in_its_units(given[name], written) for name in _BOUNDS & given.keys()})


def _in_its_units(bound: float, written: object) -> object:
    if bound and isinstance(written, str) and _DURATION.fullmatch(written):
        return format_duration(bound)
    return int(bound) if bound == int(bound) else bound


def own_text(error: ErrorDetails) -> str:
    """Return the error's own text, on one line of at most 300 characters."""
    raised = error.get("ctx", {}).get("error")
    text = " ".join((str(raised) if isinstance(raised, Exception) else error["msg"]).split())
    return text if len(text) <= 300 else f"{text[:299]}…"
