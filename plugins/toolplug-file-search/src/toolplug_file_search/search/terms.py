"""From what a model asks to what the index looks for: words in every form that the index has, never operators of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise, product
from typing import NamedTuple

from toolplug_file_search.documents.analysis import COMPOUNDING, ENGLISH, Analyzer, Word, without_accents, words
from toolplug_file_search.storage.database import TimeLimit
from toolplug_file_search.storage.schema import trigrams

MAX_WORDS = 32
PAIR_WEIGHT = 0.5
PART_WEIGHT = 0.6
"""Of a word that is a part of a longer one, or the other way round."""
TYPO_WEIGHT = 0.7
_PART, _COMPOUND, _TYPO = 4, 9, 5
"""From so many letters on, a word is looked for in others, and taken apart, and taken for misspelled."""
_ALTERNATIVES = 12
_LIKE = 0.82


class Term(NamedTuple):
    """One thing that is asked for, a word or two `neighbours`: its forms, each with its weight. The best one counts.

    A form is a word of the index, two adjacent words, or the beginning of one (`*`).
    """

    name: str
    forms: Mapping[str, float]
    weight: float = 1.0
    neighbours: tuple[str, ...] = ()


def expression(form: str) -> str:
    """A form as a query of FTS5, without operators."""
    return f'"{form[:-1]}"*' if form.endswith("*") else f'"{form}"'


class _Corpora(NamedTuple):
    """What is looked through."""

    connection: sqlite3.Connection
    numbers: Sequence[int]
    languages: Sequence[str]

    @property
    def compounding(self) -> bool:
        return not COMPOUNDING.isdisjoint(self.languages)


def terms(
    query: str, connection: sqlite3.Connection, corpora: Sequence[int], analyzer: Analyzer, limit: TimeLimit
) -> list[Term]:
    """Return a term for each of the first different words of the query, then for the pairs of neighbours among them.

    Everything but letters, digits and marks separates words, quotes, `*`, `:` and brackets too. Raises
    `IndexUnavailable` at the limit.
    """
    sequence = _without_last_characters(list(words(query)))
    kept = dict.fromkeys(sequence[: 4 * MAX_WORDS])
    languages = _languages(connection, corpora)
    index = _Corpora(connection, corpora, languages)
    forms: dict[Word, dict[str, float]] = {}
    for word in list(kept)[:MAX_WORDS]:
        limit.check()
        forms[word] = _forms(word, index, analyzer)
    found = [Term(word.text, alternatives) for word, alternatives in forms.items()]
    pairs = dict.fromkeys(pair for pair in pairwise(sequence) if pair[0] in forms and pair[1] in forms)
    for left, right in list(pairs)[:MAX_WORDS]:
        both = product(list(forms[left].items())[:2], list(forms[right].items())[:2])
        together = {f"{a} {b}": min(x, y) for (a, x), (b, y) in both if not (a + b).endswith("*")}
        found.append(Term(f"{left.text} {right.text}", together, PAIR_WEIGHT, (left.text, right.text)))
    return found


def _without_last_characters(sequence: list[Word]) -> list[Word]:
    """Drop the last character of each run of a script without spaces, which its last pair holds already."""
    return [
        word
        for before, word in zip([None, *sequence], sequence, strict=False)
        if not (word.dense and len(word.text) == 1 and before and before.dense and before.text.endswith(word.text))
    ]


def _languages(connection: sqlite3.Connection, corpora: Sequence[int]) -> list[str]:
    marks = ", ".join("?" * len(corpora))
    rows = connection.execute(f"SELECT DISTINCT language FROM files WHERE corpus IN ({marks}) AND chunks > 0", corpora)
    return sorted({str(row[0]) for row in rows if row[0]}) or [ENGLISH]


def _forms(word: Word, index: _Corpora, analyzer: Analyzer) -> dict[str, float]:
    """The tokens that stand for a word, best first: as each language would keep it, then what is like it."""
    if word.dense:  # a single character is the first of a pair, or the last of a run
        return {word.text if len(word.text) > 1 else f"{word.text}*": 1.0}
    folded = without_accents(word.text)
    forms = dict.fromkeys([*(analyzer.tokens([word], language)[0] for language in index.languages)], 1.0)
    forms |= dict.fromkeys(_tokens(index, [folded]), 1.0)
    if len(folded) >= _PART and index.compounding:
        for part in dict.fromkeys([folded, min(forms, key=len)]):  # a stem need not be a part of the word
            for token in _holding(index, part):
                forms.setdefault(token, PART_WEIGHT)
    if not _any_held(index, forms):
        forms |= _parts(index, folded, analyzer) if index.compounding and len(folded) >= _COMPOUND else {}
        if not _any_held(index, forms) and len(folded) >= _TYPO:
            forms |= dict.fromkeys(_similar(index, folded), TYPO_WEIGHT)
    return dict(list(forms.items())[:_ALTERNATIVES])


def _tokens(index: _Corpora, surfaces: Sequence[str]) -> list[str]:
    """The tokens of these words, wherever a document has them."""
    corpora, wanted = ", ".join("?" * len(index.numbers)), ", ".join("?" * len(surfaces))
    rows = index.connection.execute(
        f"SELECT DISTINCT token FROM words WHERE corpus IN ({corpora}) AND surface IN ({wanted})",
        (*index.numbers, *surfaces),
    )
    return [row[0] for row in rows]


def _any_held(index: _Corpora, forms: Mapping[str, float]) -> bool:
    corpora, wanted = ", ".join("?" * len(index.numbers)), ", ".join("?" * len(forms))
    found = index.connection.execute(
        f"SELECT 1 FROM tokens WHERE corpus IN ({corpora}) AND token IN ({wanted}) LIMIT 1", (*index.numbers, *forms)
    )
    return found.fetchone() is not None


def _holding(index: _Corpora, part: str) -> list[str]:
    """The tokens of compounds that have this part: *Beitrag* in *Krankenversicherungsbeiträge*."""
    if len(part) < _PART:
        return []
    found: dict[str, None] = {}
    for number in index.numbers:
        rows = index.connection.execute(
            f"SELECT token FROM {trigrams(number)} JOIN words ON words.number = {trigrams(number)}.rowid "
            f"WHERE {trigrams(number)} MATCH ? AND compounds AND length(words.surface) >= ? "
            "ORDER BY length(words.surface) LIMIT ?",
            (f'"{part}"', len(part) + 3, _ALTERNATIVES),
        )
        found |= dict.fromkeys(str(row[0]) for row in rows)
    return list(found)


def _parts(index: _Corpora, word: str, analyzer: Analyzer) -> dict[str, float]:
    """The tokens of the words that begin and end a compound that no document has."""
    pieces = [word[:cut] for cut in range(_PART, len(word) - 3)] + [word[cut:] for cut in range(3, len(word) - 3)]
    surfaces = [piece for piece in pieces if len(piece) >= _PART]
    stems = [stem for language in index.languages for stem in analyzer.tokens(map(Word, surfaces), language)]
    held = {stem: None for stem in stems if len(stem) >= _PART and _any_held(index, {stem: 1.0})}
    longest = sorted(held, key=len, reverse=True)[:3]
    return dict.fromkeys(longest, PART_WEIGHT)


def _similar(index: _Corpora, word: str) -> list[str]:
    """The tokens of words that are written almost like this one."""
    grams = " OR ".join(f'"{word[start : start + 3]}"' for start in range(len(word) - 2))
    found: list[tuple[float, str]] = []
    for number in index.numbers:
        rows = index.connection.execute(
            f"SELECT words.surface, token FROM {trigrams(number)} "
            f"JOIN words ON words.number = {trigrams(number)}.rowid "
            f"WHERE {trigrams(number)} MATCH ? ORDER BY rank LIMIT 50",
            (grams,),
        )
        for surface, token in rows:
            matcher = SequenceMatcher(None, word, surface)
            if matcher.quick_ratio() >= _LIKE and (likeness := matcher.ratio()) >= _LIKE:
                found.append((-likeness, token))
    return list(dict.fromkeys(token for _, token in sorted(found)))[:3]
