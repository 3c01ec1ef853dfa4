"""Values on their way into a script and out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import cast

from pydantic_core import to_json, to_jsonable_python
from pydantic_monty import ExternalSettledResult

from toolplug import ToolResult, ToolStatus
from toolplug_code_mode.limits import MAX_BITS, MAX_BITS_OF_TEXT, MAX_PRINTED, MAX_TRACEBACK

Settled = ExternalSettledResult
"""The answer to a call, as the interpreter takes it: a value, or an exception."""


def exception_of(message: str, kind: str = "RuntimeError") -> Settled:
    """Return the answer that is an exception in the script."""
    return cast("Settled", {"exc_type": kind, "message": message[:MAX_TRACEBACK]})


def value_of(result: ToolResult) -> Settled:
    """Return the result of a tool as the script sees it: its value, its text if it has none, or an exception."""
    if result.status is ToolStatus.TOOL_ERROR:
        return exception_of(result.output)
    if result.is_error:
        return exception_of(f"{result.status}: {result.output}")
    cut = result.metadata.get("truncated")
    if isinstance(cut, Mapping):
        size = cast("Mapping[str, object]", cut).get("bytes")
        return exception_of(f"the result of {result.name} has {size} bytes, which is over its limit: ask for less")
    return {"return_value": result.output if result.structured is None else result.structured}


def arguments_of(given: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a call as JSON values. Raises `ValueError` for what is none."""
    try:
        return cast("dict[str, object]", json.loads(json.dumps(given, allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"arguments of tools are JSON values: {error}") from None


def json_value(value: object) -> object:
    """Return the value of a script as JSON: sets become lists, dates texts, and what has no such form its `repr`.

    A value that is none must not be an error: the script has made its calls.
    """
    try:
        found = to_jsonable_python(value, serialize_unknown=True, bytes_mode="base64")
        return _exact(found)
    except (ValueError, RecursionError):
        with suppress(RecursionError):
            return repr(value)[:MAX_TRACEBACK]
    return f"a {type(value).__name__} that is nested too deeply to be shown"


def _exact(value: object) -> object:
    """Return JSON values with a text for each number that JSON has no place for."""
    if isinstance(value, dict):
        return {key: _exact(each) for key, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_exact(each) for each in cast("list[object]", value)]
    bits = value.bit_length() if isinstance(value, int) else 0
    if bits > MAX_BITS_OF_TEXT:
        return f"an integer of {bits:,} bits"  # its digits take time by their square
    is_number = not isinstance(value, float) or isfinite(value)
    return value if is_number and bits <= MAX_BITS else to_json(value, inf_nan_mode="constants").decode()


class Printed:
    """What a script prints, up to a limit. Called by the interpreter with each piece."""

    def __init__(self, text: str = "", missing: int = 0) -> None:
        self._pieces = [text] if text else []
        self._left = MAX_PRINTED - len(text)
        self.missing = missing

    def __call__(self, stream: str, text: str) -> None:
        kept = text[: self._left]
        self._left -= len(kept)
        self.missing += len(text) - len(kept)
        self._pieces += [kept] if kept else []

    @property
    def beginning(self) -> str:
        """The text without a word of what is missing."""
        return "".join(self._pieces)

    @property
    def text(self) -> str:
        """The text, and how much of it is missing."""
        return f"{self.beginning}\n[{self.missing} characters more]" if self.missing else self.beginning


def as_text(value: object) -> str:
    """Return JSON values as text for people."""
    return to_json(value, serialize_unknown=True, inf_nan_mode="strings").decode()


def report_made(lines: Sequence[str]) -> str:
    """Return a note of the calls that have changed something, empty if there are none."""
    return "" if not lines else "\n[calls that it had made: " + "; ".join(lines) + "]"
