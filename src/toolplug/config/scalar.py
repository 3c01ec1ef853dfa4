"""What an unquoted YAML scalar stands for.

The core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema) with one exception: a number with a leading
zero (`010`) stays text, since half of its readers take it for 8 and half for 10. What only YAML 1.1 knew is text too:
`yes`, `off`, `1_000`, `60:30`, `2026-11-01`.
"""

from __future__ import annotations

import re

from toolplug.config.node import ScalarValue

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# More than 300 digits are no number that a setting could hold, and costly to convert: text.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,299})")
_BASED = re.compile(r"0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_NANS = frozenset((".nan", ".NaN", ".NAN"))


def resolve_scalar(text: str) -> ScalarValue:
    """Return what the unquoted text stands for; text that is nothing else is itself."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if infinity := _INFINITY.fullmatch(text):
        return float(f"{infinity[1]}inf")
    if text in _NANS:
        return float("nan")
    if len(text) <= 300 and _FLOAT.fullmatch(text):
        return float(text)
    return text


def write_scalar(value: ScalarValue) -> str:
    """Return the value as a message shows it: text in quotes, everything else as YAML writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
