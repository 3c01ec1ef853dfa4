"""Finds regular expressions of `re` whose search can take more than linear time, by their syntax trees.

`re` backtracks: where a text can be divided between two unbounded repeats in many ways, it tries all of them before it
fails. Two repeats are ambiguous if one follows the other directly, or with nothing but optional parts between, and both
can begin with the same character; a repeat in a repeat follows itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from re import _constants as op  # pyright: ignore[reportAttributeAccessIssue]
from re import _parser as parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any, NamedTuple

UNBOUNDED = 1_000
"""A repeat that may go on for so long counts as one without end."""

SAMPLES = [*map(chr, range(256)), "ı", "ſ", "\u0301", "\u2028", "\u2003", "٣", "中", "K", "\U0001f600", "\ue000"]
"""Characters that stand for all: two sets overlap if both have one of these."""

Item = tuple[Any, Any]

REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)  # a possessive repeat gives nothing back
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}


class First(NamedTuple):
    """The sample characters that a part can begin with, and whether it can be empty."""

    characters: frozenset[str]
    empty: bool


def ambiguous(pattern: str | bytes, flags: int = 0) -> list[str]:
    """Return a line for each ambiguous repeat of a pattern."""
    tree = parser.parse(pattern, flags)
    return [*dict.fromkeys(_Audit(tree.state.flags).check(list(tree), []))]


class _Audit:
    def __init__(self, flags: int) -> None:
        self._flags = flags

    def check(self, items: Sequence[Item], after: Sequence[Item]) -> Iterator[str]:
        """Yield what is ambiguous in a sequence that these items follow."""
        for at, item in enumerate(items):
            rest = [*items[at + 1 :], *after]
            kind, value = item
            if kind in REPEATS and value[1] >= UNBOUNDED:
                body = list(value[2])
                yield from self._next_to(self.first(body), rest)
                yield from self.check(body, [*body, *rest])
                yield from self._alternatives(body)
            else:
                gives_back = kind not in (op.ATOMIC_GROUP, op.POSSESSIVE_REPEAT)
                for inner in _inner(item):
                    yield from self.check(inner, rest if gives_back else [])

    def _next_to(self, first: First, rest: Sequence[Item]) -> Iterator[str]:
        """Yield the unbounded repeats that the text after a repeat can belong to as well."""
        for item in rest:
            kind, value = item
            if kind in (*REPEATS, op.POSSESSIVE_REPEAT) and value[1] >= UNBOUNDED:
                if common := first.characters & self.first(list(value[2])).characters:
                    yield f"two repeats next to each other can both take {min(common)!r}"
            else:
                for inner in _inner(item):
                    yield from self._next_to(first, inner)
            if not self.first([item]).empty:
                return

    def _alternatives(self, body: Sequence[Item]) -> Iterator[str]:
        """Yield a line if two alternatives of a repeat can begin with the same character."""
        while len(body) == 1 and body[0][0] is op.SUBPATTERN:
            body = list(body[0][1][3])
        if len(body) == 1 and body[0][0] is op.BRANCH:
            seen: frozenset[str] = frozenset()
            for branch in body[0][1][1]:
                characters = self.first(list(branch)).characters
                if common := seen & characters:
                    yield f"two alternatives of a repeat can both begin with {min(common)!r}"
                seen |= characters

    def first(self, items: Sequence[Item]) -> First:
        found: frozenset[str] = frozenset()
        for item in items:
            one = self._first(item)
            found |= one.characters
            if not one.empty:
                return First(found, empty=False)
        return First(found, empty=True)

    def _first(self, item: Item) -> First:
        kind, value = item
        if kind in (*REPEATS, op.POSSESSIVE_REPEAT):
            inner = self.first(list(value[2]))
            return First(inner.characters, inner.empty or value[0] == 0)
        if kind in (op.SUBPATTERN, op.ATOMIC_GROUP, op.BRANCH):
            parts = [self.first(part) for part in _inner(item)]
            return First(frozenset().union(*(part.characters for part in parts)), any(part.empty for part in parts))
        if kind in (op.AT, op.ASSERT, op.ASSERT_NOT):
            return First(frozenset(), empty=True)
        if kind in (op.GROUPREF, op.GROUPREF_EXISTS):
            return First(frozenset(SAMPLES), empty=True)
        return First(frozenset(filter(self._matcher(item), SAMPLES)), empty=False)

    def _matcher(self, item: Item) -> Any:
        """Return a function that says whether one character matches an item of one character."""
        return re.compile(_written(item), self._flags & ~re.VERBOSE | re.UNICODE & ~re.ASCII).match


def _inner(item: Item) -> list[list[Item]]:
    kind, value = item
    if kind is op.SUBPATTERN:
        return [list(value[3])]
    if kind is op.ATOMIC_GROUP:
        return [list(value)]
    if kind is op.BRANCH:
        return [list(branch) for branch in value[1]]
    return [list(value[2])] if kind in (*REPEATS, op.POSSESSIVE_REPEAT) else []


def _written(item: Item) -> str:
    """Return the expression of an item that takes one character."""
    kind, value = item
    if kind is op.ANY:
        return "."
    if kind is op.LITERAL:
        return re.escape(chr(value))
    if kind is op.NOT_LITERAL:
        return f"[^{re.escape(chr(value))}]"
    parts: list[str] = []
    for each, inside in value:
        if each is op.LITERAL:
            parts.append(re.escape(chr(inside)))
        elif each is op.RANGE:
            parts.append("-".join(re.escape(chr(end)) for end in inside))
        elif each is op.CATEGORY:
            parts.append(_CATEGORIES[inside])
    return f"[{'^' if value[0][0] is op.NEGATE else ''}{''.join(parts)}]"
