"""The known name that somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_SHOWN = 12


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like `name`, case aside, or None where none is like it."""
    folded = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower()[:100], folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def name_hint(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name as a hint, or the known names where none is near; empty without known names."""
    names = list(dict.fromkeys(known))
    if (near := nearest(name, names)) is not None:
        return f"nearest: {near!r}"
    if not names:
        return ""
    shown = ", ".join(repr(known_name) for known_name in names[:_MAX_SHOWN])
    return f"known: {shown}" + (f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else "")
