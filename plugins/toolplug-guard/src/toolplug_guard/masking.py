"""Masking of results: every text, value and key in which a kind is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from time import thread_time
from typing import cast

from pydantic_core import from_json, to_json

from toolplug import ToolResult
from toolplug_guard.patterns import Detector, Span

BUDGET_S = 4.0
"""Seconds of CPU for one result; the host waits five of the clock."""

MAX_PARSED = 8 * 1024 * 1024
"""Characters of an output that are read as JSON; of a larger one nobody knows what it hides behind escapes."""

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
        self._until = thread_time() + BUDGET_S
        self._known: dict[str, Sequence[tuple[Span, str]]] = {}

    def result(self, result: ToolResult) -> ToolResult:
        """Return the result with everything masked, and counted once. Raises `TimeoutError`.

        An output that is JSON stays JSON: its values are masked, then it is encoded again.
        """
        value = _json_value(result)
        if self._finds_nothing(result, value):
            return result
        structured = self.value(result.structured)
        masked = structured if value is result.structured or value == result.structured else self.value(value)
        return result._replace(
            output=self.text(result.output) if masked == value else to_json(masked).decode(),
            structured=structured,
            parts=tuple(cast("Mapping[str, object]", self.value(part, _BINARY)) for part in result.parts),
            metadata=cast("Mapping[str, object]", self.value(result.metadata)),
        )

    def _finds_nothing(self, result: ToolResult, value: object) -> bool:
        """Return True if no text of the result has a finding: most have none, and are searched all at once."""
        texts: list[str] = []
        for part in (result.structured, None if value is result.structured else value, result.metadata):
            _collect(part, texts)
        for part in result.parts:
            _collect(part, texts, _BINARY)
        # JSON is masked value by value and encoded again: its text is searched only if no value of it has a finding.
        if value is None:
            return not self._finds([result.output, *texts])
        return not self._finds(texts) and not self._finds([result.output])

    def _finds(self, texts: Iterable[str]) -> bool:
        """Return True if one of the texts has a finding, and remember the findings of each."""
        unequal = [*dict.fromkeys(texts)]
        found = self._detector.findings_of(unequal, self._until)
        self._known.update((text, found.get(at, ())) for at, text in enumerate(unequal))
        return bool(found)

    def value(self, value: object, skipped: frozenset[str] = frozenset()) -> object:
        """Return a JSON value with its texts, keys and integers masked, but not the values of the `skipped` keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[str, object]", value).items()
            masked: dict[str, object] = {}
            for key, item in items:
                inside = skipped if key == "resource" else frozenset[str]()
                masked[_unused_key(self.text(key), masked)] = item if key in skipped else self.value(item, inside)
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
        findings = self._known.get(text)
        encoded = text.encode()
        if findings is None:
            findings = [*self._detector.findings(encoded, self._until)]
        if not findings:
            return text
        pieces: list[bytes] = []
        end = 0
        for (start, last), kind in sorted(findings):
            if start >= end:
                pieces += [encoded[end:start], self._replacement.replace("{kind}", kind).encode()]
                self.found[kind] += 1
            end = max(end, last)
        return b"".join((*pieces, encoded[end:])).decode(errors="replace")


def _json_value(result: ToolResult) -> object:
    """Return the JSON object or array that an output is, None if it is none. Raises `ValueError` if it is too large."""
    text = result.output
    if text[:1] not in ("{", "["):
        return None
    if result.structured is not None and to_json(result.structured).decode() == text:
        return result.structured
    if len(text) > MAX_PARSED:
        raise ValueError(f"its output is JSON of more than {MAX_PARSED:,} characters")
    try:
        value: object = from_json(text)
    except ValueError:
        return None
    return value


def _collect(value: object, texts: list[str], skipped: frozenset[str] = frozenset()) -> None:
    """Add the texts, keys and integers of a JSON value to a list, but not the values of the `skipped` keys."""
    waiting = [(value, skipped)]
    while waiting:
        item, without = waiting.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, Mapping):
            for key, inner in cast("Mapping[str, object]", item).items():
                texts.append(key)
                if key not in without:
                    waiting.append((inner, without if key == "resource" else frozenset()))
        elif isinstance(item, list):
            items = cast("list[object]", item)
            texts += map(str, {inner for inner in items if type(inner) is int})  # large lists are of numbers
            waiting += [(inner, without) for inner in items if type(inner) is not int]
        elif isinstance(item, int) and not isinstance(item, bool):
            texts.append(str(item))


def _unused_key(key: str, used: Mapping[str, object]) -> str:
    """Return the key, numbered if another key was masked to the same text: no value is lost."""
    number, unused = 1, key
    while unused in used:
        number += 1
        unused = f"{key} {number}"
    return unused
