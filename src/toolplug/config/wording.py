"""pydantic's errors in plain words: each phrase completes the sentence `should be …`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import ErrorDetails

from toolplug.config.units import SHAPE_ERROR

_TEXT = "text"
_BOOL = "true or false (without quotes)"
_WHOLE = "a whole number"
_NUMBER = "a number"
_MAPPING = "a mapping of keys"
_LIST = "a list"
_URL = "a URL such as https://example.com/path"

_PHRASES: Mapping[str, str] = {
    SHAPE_ERROR: "{shape}",
    "bool_type": _BOOL,
    "bool_parsing": _BOOL,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "decimal_type": _NUMBER,
    "decimal_parsing": _NUMBER,
    "finite_number": "a number that is not infinite",
    "string_type": _TEXT,
    "string_sub_type": _TEXT,
    "bytes_type": _TEXT,
    "path_type": "the path of a file",
    "none_required": "empty",
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dataclass_type": _MAPPING,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "frozen_set_type": _LIST,
    "iterable_type": _LIST,
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "too_short": "{min_length} or more entries",
    "too_long": "{max_length} entries or fewer",
    "url_type": _URL,
    "url_parsing": _URL,
    "url_syntax_violation": _URL,
    "url_scheme": "a URL that begins with {expected_schemes}",
    "union_tag_invalid": "a mapping whose key {discriminator} is one of {expected_tags}",
    "union_tag_not_found": "a mapping that has the key {discriminator}",
}


def right_shape(error: ErrorDetails) -> str | None:
    """Return what the value should be, or None where only the error's own text says what is wrong."""
    phrase = _PHRASES.get(error["type"])
    return None if phrase is None else phrase.format_map(error.get("ctx", {}))


def own_text(error: ErrorDetails) -> str:
    """Return the text of the error's author, on one line of at most 300 characters."""
    raised = error.get("ctx", {}).get("error")
    text = " ".join((str(raised) if isinstance(raised, Exception) else error["msg"]).split())
    return text if len(text) <= 300 else f"{text[:299]}…"
