"""From what a model asks to what the index looks for: words and pairs of words, never operators of the index."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import NamedTuple

MAX_WORDS = 32
PAIR_WEIGHT = 0.5


class Term(NamedTuple):
    """`expression` is a quoted FTS5 string: one word, or two that stand side by side."""

    expression: str
    weight: float


def terms(query: str) -> list[Term]:
    """The first different words of the query, then the pairs of neighbours among them, in order and each once.

    Everything but letters, digits and marks separates words, quotes, `*`, `:` and brackets too.
    """
    sequence = _words(query)
    kept = list(dict.fromkeys(sequence))[:MAX_WORDS]
    known = set(kept)
    pairs = dict.fromkeys(f"{left} {right}" for left, right in pairwise(sequence) if {left, right} <= known)
    return [
        *(Term(f'"{word}"', 1.0) for word in kept),
        *(Term(f'"{pair}"', PAIR_WEIGHT) for pair in list(pairs)[:MAX_WORDS]),
    ]


def _words(query: str) -> list[str]:
    text = unicodedata.normalize("NFC", query).lower()
    return "".join(character if _in_word(character) else " " for character in text).split()


def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM"
