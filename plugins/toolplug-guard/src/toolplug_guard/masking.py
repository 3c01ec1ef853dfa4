"""Masking of results: every text, value and key in which a kind is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from time import perf_counter
from typing import cast

from pydantic_core import from_json, to_json

from toolplug import ToolResult
from toolplug_guard.patterns import Detector

BUDGET_S = 4.0
"""Seconds for one result; the host waits five."""

_BINARY = frozenset(("data", "blob"))
"""The keys of a content block, or of the resource in it, whose values are base64."""


class Masker:
    """Masks texts and JSON values, and counts what it finds by kind. Made for one result.

    `replacement` is the text in place of a finding; `{kind}` in it is the name of the kind.
    """

    def __init__(self, detector: Detector, replacement: str) -> None:
        self.found: Counter[str] = Counter()
        self._detector = detector
        self._replacement = replacement
        self._until = perf_counter() + BUDGET_S

    def result(self, result: ToolResult) -> ToolResult:
        """Return the result with everything masked, and counted once. Raises `TimeoutError`.

        An output that is JSON stays JSON: its values are masked, then it is encoded again.
        """
        structured = self.value(result.structured)
        value = _json_value(result.output)
        masked = structured if value == result.structured else self.value(value)
        return result._replace(
            output=self.text(result.output) if masked == value else to_json(masked).decode(),
            structured=structured,
            parts=tuple(cast("Mapping[str, object]", self.value(part, _BINARY)) for part in result.parts),
            metadata=cast("Mapping[str, object]", self.value(result.metadata)),
        )

    def value(self, value: object, skipped: frozenset[str] = frozenset()) -> object:
        """Return a JSON value with its texts, keys and integers masked, but not the values of the `skipped` keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[str, object]", value).items()
            masked: dict[str, object] = {}
            for key, item in items:
                inside = skipped if key == "resource" else frozenset[str]()
                masked[_unused(self.text(key), masked)] = item if key in skipped else self.value(item, inside)
            return masked
        if isinstance(value, list):
            return [self.value(item, skipped) for item in cast("list[object]", value)]
        if isinstance(value, int) and not isinstance(value, bool):
            digits = str(value)
            text = self.text(digits)
            return value if text == digits else text
        return value

    def text(self, text: str) -> str:
        """Return a text with each finding replaced."""
        encoded = text.encode()
        pieces: list[bytes] = []
        end = 0
        for (start, last), kind in sorted(self._detector.findings(encoded, self._until)):
            if start >= end:
                pieces += [encoded[end:start], self._replacement.replace("{kind}", kind).encode()]
                self.found[kind] += 1
            end = max(end, last)
        return b"".join((*pieces, encoded[end:])).decode(errors="replace") if pieces else text


def _json_value(text: str) -> object:
    """Return the JSON object or array that a text is, None if it is none."""
    try:
        return from_json(text) if text[:1] in ("{", "[") else None
    except ValueError:
        return None


def _unused(key: str, used: Mapping[str, object]) -> str:
    """Return the key, numbered if another key was masked to the same text: no value is lost."""
    number, unused = 1, key
    while unused in used:
        number += 1
        unused = f"{key} {number}"
    return unused
