"""The fields of an assistant turn that only its model's server understands, and wants back.

Signatures of thoughts, encrypted reasoning, references to parsed files: some servers refuse the next request without
them. A stream sends them in pieces.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, cast

from toolplug.catalog.exact_json import as_object
from toolplug.parts.responses.limits import MAX_FIELD_VALUES, MAX_FIELDS_CHARS
from toolplug.signatures.values import encode_value

_IN_PIECES: Final = frozenset({"text", "summary", "thinking", "reasoning", "content"})
"""Texts of which a stream sends a piece at a time; any other value is sent whole, and the last one counts."""

_MOST_OF_INDEX: Final = 8
"""The last entries of a list under one index, which a further piece may continue."""
_NAMED: Final = 5
"""Fields that the warning names."""

_LOG = logging.getLogger("toolplug.responses")


class _Pieces(list[str]):
    """A text in pieces."""


class _Entries(list[object]):
    """The entries of a list that comes in pieces."""

    def __init__(self, entries: Iterable[object] = ()) -> None:
        super().__init__(entries)
        self._by_index: dict[object, deque[dict[str, object]]] = {}

    def add(self, piece: Iterable[object]) -> None:
        """Merge each entry of a piece into the one of earlier pieces that it continues, or append it."""
        last = [cast("dict[str, object]", entry) for entry in self[-1:] if isinstance(entry, dict)]
        new: list[dict[str, object]] = []
        for each in piece:
            if not isinstance(each, Mapping):
                self.append(each)
                continue
            entry = as_object(cast("object", each))
            earlier = self._by_index.get(_index(entry), ()) if "index" in entry else last
            into = next((old for old in reversed(earlier) if _continues(old, entry)), None)
            if into is None:
                into = dict[str, object]()
                self.append(into)
                new.append(into)
            _merge(into, entry)
        for entry in new:
            if "index" in entry:
                self._by_index.setdefault(_index(entry), deque(maxlen=_MOST_OF_INDEX)).append(entry)


def _index(entry: Mapping[str, object]) -> object:
    index = entry["index"]
    return index if isinstance(index, int | str) else None


class BackendFields:
    """Collects the fields of one message or call. Those over the limits are left out, with one warning."""

    def __init__(self) -> None:
        self._fields: dict[str, object] = {}
        self._size = 0
        self._values = 0
        self._warned = False

    def add(self, fields: Mapping[str, object]) -> None:
        """Add the fields of one delta."""
        if not fields:
            return
        many = len(fields) > MAX_FIELD_VALUES
        text = "" if many else encode_value(fields)
        self._size += len(text or "")
        self._values += 0 if text is None else text.count(",") + text.count("[") + text.count("{")
        if many or text is None or self._size > MAX_FIELDS_CHARS or self._values > MAX_FIELD_VALUES:
            if not self._warned:
                why = "they are not JSON" if text is None else "they are too large"
                names = [*islice(fields, _NAMED)]
                _LOG.warning("fields of the model's server do not go back to it, as %s: %.200r", why, names)
            self._warned = True
            return
        _merge(self._fields, fields)

    def has(self, name: str) -> bool:
        """Return whether there is such a field."""
        return name in self._fields

    @property
    def value(self) -> Mapping[str, object]:
        """The fields so far, those of a stream as if they had come at once."""
        return as_object(_join(self._fields))


def _merge(into: dict[str, object], fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        if value is not None or name not in into:
            into[name] = _merge_value(into.get(name), value, in_pieces=name in _IN_PIECES)


def _merge_value(old: object, new: object, *, in_pieces: bool) -> object:
    if isinstance(new, str):
        if not in_pieces:
            return new
        if isinstance(old, _Entries):  # a content that has begun as a list of parts
            return _merge_value(old, [{"type": "text", "text": new}], in_pieces=False)
        pieces = old if isinstance(old, _Pieces) else _Pieces()
        pieces.append(new)
        return pieces
    if isinstance(new, Mapping):
        entry: dict[str, object] = cast("dict[str, object]", old) if isinstance(old, dict) else {}
        _merge(entry, as_object(cast("object", new)))
        return entry
    if isinstance(new, list):
        entries = _entries(old)
        entries.add(cast("list[object]", new))
        return entries
    return new


def _entries(old: object) -> _Entries:
    if isinstance(old, _Pieces):  # a content that has begun as a text
        return _Entries([{"type": "text", "text": old}])
    return old if isinstance(old, _Entries) else _Entries()


def _continues(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Return whether both are pieces of one entry: no value that is sent whole differs."""
    pieces = any(name in _IN_PIECES and name in old for name in new) or "index" in new
    return pieces and all(
        name in _IN_PIECES or value is None or old.get(name) is None or old[name] == value
        for name, value in new.items()
    )


def _join(value: object) -> object:
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _join(each) for name, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_join(each) for each in cast("list[object]", value)]
    return value
