"""Ids of servers out of names that other programs allow (CONTRACT.md section 1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MAX_ID = 64

_OTHER = re.compile(r"[^a-z0-9_]+")
_INSTEAD = "server"


def legal_ids(names: Iterable[str]) -> Mapping[str, str]:
    """An id for each name: the name itself where it is one, and no id twice."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        wanted = _legal(name)
        made, number = wanted, 1
        while made in taken:
            number += 1
            ending = f"-{number}"
            made = wanted[: MAX_ID - len(ending)] + ending
        taken.add(made)
        found[name] = made
    return found


def _legal(name: str) -> str:
    plain = _OTHER.sub("-", name.lower()).strip("-_")
    if not plain:
        return _INSTEAD
    return (plain if plain[0].isalpha() else f"{_INSTEAD}-{plain}")[:MAX_ID]
