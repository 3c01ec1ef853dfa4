"""pydantic's errors in plain words: phrases that complete the sentence `should be …`."""

from __future__ import annotations

from pydantic_core import ErrorDetails

from toolplug.config.units import SHAPE_ERROR

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


def right_shape(error: ErrorDetails) -> str | None:
    """Return a phrase for a valid value, or None for an error that only its own text describes."""
    phrase = _PHRASES.get(error["type"])
    return None if phrase is None else phrase.format_map(error.get("ctx", {}))


def own_text(error: ErrorDetails) -> str:
    """Return the error's own text, on one line of at most 300 characters."""
    raised = error.get("ctx", {}).get("error")
    text = " ".join((str(raised) if isinstance(raised, Exception) else error["msg"]).split())
    return text if len(text) <= 300 else f"{text[:299]}…"
