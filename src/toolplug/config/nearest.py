"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from heapq import nlargest

_MAX_SHOWN = 12
_MAX_NAME = 100
_MAX_COMPARED = 64
"""difflib takes about 30 µs per name: of more names only those that share the most pieces are compared."""
_LEAST = 0.61
"""Two letters of five may be wrong in no misspelling: `roots` is not `tools`, whose likeness is 0.6."""
_ALMOST = 0.9
_PIECES = 16
_SHORT = 12


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`, ignoring case, or None if none is similar."""
    return next(iter(nearest_few(name, known, 1)), None)


def nearest_few(name: str, known: Iterable[str], most: int) -> list[str]:
    """Return up to `most` known names, ignoring case: the most similar one, then those almost as similar."""
    folded = {candidate.lower(): candidate for candidate in known}
    sought = name.lower()[:_MAX_NAME]
    likely = folded if len(folded) <= _MAX_COMPARED else _sharing(sought, folded)
    matches = difflib.get_close_matches(sought, likely, n=most, cutoff=_LEAST)
    least = _likeness(sought, matches[0]) * _ALMOST if matches else 0.0
    return [folded[match] for match in matches if _likeness(sought, match) >= least]


def _likeness(sought: str, known: str) -> float:
    return difflib.SequenceMatcher(None, known, sought).ratio()


def _sharing(sought: str, known: Collection[str]) -> list[str]:
    """Return the names that share the most pieces with the sought one, relative to their length."""
    size = max(2, -(-len(sought) // _PIECES))
    pieces = {sought[start : start + size] for start in range(0, len(sought), size)}
    if len(sought) <= _SHORT:
        # A short name with one wrong letter may share no piece with the right one, but shares its letters.
        pieces |= set(sought)
    return nlargest(
        _MAX_COMPARED, known, key=lambda item: sum([piece in item for piece in pieces]) / (len(sought) + len(item))
    )


def name_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest known name, else up to 12 known names; empty without known names."""
    names = list(dict.fromkeys(known))
    if (near := nearest(name, names)) is not None:
        return f"nearest: {near!r}"
    if not names:
        return ""
    shown = ", ".join(repr(known_name) for known_name in names[:_MAX_SHOWN])
    return f"known: {shown}" + (f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else "")
