"""The fields of an assistant turn that only its model's server understands, and wants back.

Signatures of thoughts, encrypted reasoning, references to parsed files: some servers refuse the next request without
them. A stream sends them in pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from toolplug.signatures.values import as_object, encoded

MAX_FIELDS_CHARS: Final = 512 * 1024
MAX_FIELD_VALUES: Final = 4096
"""Of one turn's message, and of each of its calls. Reading and storing so many values takes 20 ms."""

_IN_PIECES: Final = frozenset({"text", "summary", "thinking", "reasoning", "content"})
"""Texts of which a stream sends a piece at a time; any other value is sent whole, and the last one counts."""

_LOG = logging.getLogger("toolplug.responses")


class _Pieces(list[str]):
    """A text in pieces."""


class BackendFields:
    """Collects the fields of one message or call. Those over the limits are left out, with a warning."""

    def __init__(self) -> None:
        self._fields: dict[str, object] = {}
        self._size = 0
        self._values = 0

    def add(self, fields: Mapping[str, object]) -> None:
        """Add the fields of one delta."""
        if not fields:
            return
        text = encoded(fields)
        self._size += len(text or "")
        self._values += 0 if text is None else text.count(",") + text.count("[") + text.count("{")
        if text is None or self._size > MAX_FIELDS_CHARS or self._values > MAX_FIELD_VALUES:
            why = "they are not JSON" if text is None else "they are too large"
            _LOG.warning("fields of the model's server do not go back to it, as %s: %.200r", why, sorted(fields))
            return
        _merge(self._fields, fields)

    def has(self, name: str) -> bool:
        """Return whether there is such a field."""
        return name in self._fields

    @property
    def value(self) -> Mapping[str, object]:
        """The fields so far, those of a stream as if they had come at once."""
        return as_object(_joined(self._fields))


def _merge(into: dict[str, object], fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        if value is not None or name not in into:
            into[name] = _merged(into.get(name), value, in_pieces=name in _IN_PIECES)


def _merged(old: object, new: object, *, in_pieces: bool) -> object:
    if isinstance(new, str):
        if not in_pieces:
            return new
        if isinstance(old, list) and not isinstance(old, _Pieces):  # a content that has begun as a list of parts
            return _merged(cast("list[object]", old), [{"type": "text", "text": new}], in_pieces=False)
        pieces = old if isinstance(old, _Pieces) else _Pieces()
        pieces.append(new)
        return pieces
    if isinstance(new, Mapping):
        entry: dict[str, object] = cast("dict[str, object]", old) if isinstance(old, dict) else {}
        _merge(entry, as_object(cast("object", new)))
        return entry
    if isinstance(new, list):
        before = _entries(old)
        return [*before, *_added(before, cast("list[object]", new))]
    return new


def _entries(old: object) -> list[object]:
    if isinstance(old, _Pieces):  # a content that has begun as a text
        return [{"type": "text", "text": old}]
    return cast("list[object]", old) if isinstance(old, list) else []


def _added(before: Sequence[object], new: Sequence[object]) -> Iterator[object]:
    """Merge each entry into the one before that it continues; yield the others."""
    for each in new:
        if not isinstance(each, Mapping):
            yield each
            continue
        entry = as_object(cast("object", each))
        candidates = reversed(before) if "index" in entry else before[-1:]
        for old in candidates:
            if isinstance(old, dict) and _continues(cast("dict[str, object]", old), entry):
                _merge(cast("dict[str, object]", old), entry)
                break
        else:
            merged: dict[str, object] = {}
            _merge(merged, entry)
            yield merged


def _continues(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Return whether both are pieces of one entry: no value that is sent whole differs."""
    pieces = any(name in _IN_PIECES and name in old for name in new) or "index" in new
    return pieces and all(
        name in _IN_PIECES or value is None or old.get(name) is None or old[name] == value
        for name, value in new.items()
    )


def _joined(value: object) -> object:
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _joined(each) for name, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_joined(each) for each in cast("list[object]", value)]
    return value
