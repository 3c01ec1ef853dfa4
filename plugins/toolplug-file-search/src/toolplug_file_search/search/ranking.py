"""How well a passage answers: BM25 over everything that the caller can see.

FTS5 finds the passages that may answer, by one query over all words, and orders them by its own measure. That one
knows only its own corpus, takes a word that half of the passages hold as worthless, and cannot let alternatives of a
word count once. So the first of them are ranked again here: rarity is counted over all corpora of the search together,
by a measure that is never zero. A query of FTS5 for each word would take three times as long in 100,000 passages.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toolplug_file_search.search.terms import Term, expression
from toolplug_file_search.storage.schema import passages

_COLUMNS = (3.0, 2.5, 1.0)
"""Weights of the name, the headings and the text."""
CANDIDATES = 200
_MANY = 1000
"""From so many passages on, words that most of them hold are left out: they would cost most of the time."""
_K1, _B = 1.2, 0.75
_SATURATION = _K1 + 1
"""What the measure of a term in a passage comes to at most."""


class Hit(NamedTuple):
    """A chunk of a corpus; `score` is between 0 and 1, and 1 would be all that was asked for, over and over."""

    corpus: int
    chunk: int
    score: float


class Weights(NamedTuple):
    """How much the ranking by words and the one by meaning count when they are fused."""

    words: float = 1.0
    meaning: float = 1.0


class _Weighed(NamedTuple):
    """A term; `held_by` so many passages of all corpora."""

    term: Term
    held_by: int
    rarity: float


class _Candidate(NamedTuple):
    """A passage that may answer, with its three columns as the index keeps them."""

    corpus: int
    chunk: int
    columns: Sequence[str]


class _Column:
    """A column of all candidates.

    Its different texts follow each other in one string, which is searched faster than each of them.
    """

    def __init__(self, weight: float, texts: Sequence[str]) -> None:
        self._weight = weight
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        self._numbers = np.array([numbers[text] for text in texts])
        bounded = [f" {text} " for text in numbers]  # two spaces between texts: no form is found across them
        self._text = "".join(bounded)
        self._ends = np.cumsum([len(text) for text in bounded])
        words = np.array([1 + text.count(" ") if text else 0 for text in numbers], dtype=np.float64)
        self.lengths: npt.NDArray[np.float64] = words[self._numbers]
        """How many words each candidate has."""
        self._starts: dict[str, Sequence[int]] = {}

    def often(self, form: str) -> npt.NDArray[np.float64] | float:
        """How often a form is in each candidate, times the weight of the column."""
        starts = self._places(form)
        if not starts:
            return 0.0
        counts = np.bincount(np.searchsorted(self._ends, starts, side="right"), minlength=len(self._ends))
        return np.multiply(self._weight, counts[self._numbers], dtype=np.float64)

    def _places(self, form: str) -> Sequence[int]:
        """Where a form begins. Two adjacent words are looked for where the rarer of those that were counted is."""
        if form not in self._starts:
            first, _, second = form.partition(" ")
            self._starts[form] = self._pairs(first, second) if second else list(_found(_bounded(form), self._text))
        return self._starts[form]

    def _pairs(self, first: str, second: str) -> Sequence[int]:
        both = f" {first} {second} "
        counted = [word for word in (first, second) if word in self._starts]
        rarer = min(counted, key=lambda word: len(self._starts[word]), default=first)
        before = 0 if rarer == first else len(first) + 1
        starts = (start - before for start in self._places(rarer))
        return [start for start in starts if start >= 0 and self._text.startswith(both, start)]


def _bounded(form: str) -> str:
    return f" {form[:-1]}" if form.endswith("*") else f" {form} "


def _found(sought: str, text: str) -> Iterator[int]:
    start = text.find(sought)
    while start >= 0:
        yield start
        start = text.find(sought, start + 1)


def coverage(hit: Hit) -> float:
    """How much of the query a passage says, 0 to 1: all of it, once in a passage of average length, is 1."""
    return min(1.0, hit.score * _SATURATION)


def hits(
    connection: sqlite3.Connection, terms: Sequence[Term], corpora: Mapping[int, Sequence[str] | None], limit: int
) -> list[Hit]:
    """The best chunks of these corpora, best first. A corpus may be narrowed to the files with these ids."""
    size = sum(_count(connection, corpus) for corpus in corpora)
    words = _weighed(connection, [term for term in terms if not term.neighbours], list(corpora), size)
    rarities = {word.term.name: word.rarity for word in words}
    telling = _telling(words, size)
    pairs = [
        _Weighed(term, 0, max(rarities.get(name, 0.0) for name in term.neighbours)) for term in terms if term.neighbours
    ]
    weighed = [*telling, *pairs]
    best = math.fsum(item.term.weight * item.rarity * _SATURATION for item in weighed)
    found = [
        candidate
        for corpus, files in corpora.items()
        for candidate in _candidates(connection, corpus, telling, files, max(limit, CANDIDATES))
    ]
    ranked = [
        Hit(candidate.corpus, candidate.chunk, min(score / best, 1.0))
        for candidate, score in zip(found, _scores(found, weighed), strict=True)
    ]
    return sorted(ranked, key=lambda hit: (-hit.score, hit.corpus, hit.chunk))[:limit]


def _count(connection: sqlite3.Connection, corpus: int) -> int:
    return int(
        connection.execute("SELECT coalesce(sum(chunks), 0) FROM files WHERE corpus = ?", (corpus,)).fetchone()[0]
    )


def _weighed(
    connection: sqlite3.Connection, terms: Sequence[Term], corpora: Sequence[int], size: int
) -> list[_Weighed]:
    forms = {form for term in terms for form in term.forms}
    counts = _held_by(connection, [form for form in forms if not form.endswith("*")], corpora)
    for form in forms:
        if form.endswith("*"):
            counts[form] = sum(_beginning_with(connection, form, corpus) for corpus in corpora)
    found: list[_Weighed] = []
    for term in terms:
        holding = min(sum(counts.get(form, 0) for form in term.forms), size)
        found.append(_Weighed(term, holding, math.log(1 + (size - holding + 0.5) / (holding + 0.5))))
    return found


def _held_by(connection: sqlite3.Connection, tokens: Sequence[str], corpora: Sequence[int]) -> dict[str, int]:
    """How many passages hold each of these tokens."""
    numbers, wanted = ", ".join("?" * len(corpora)), ", ".join("?" * len(tokens))
    rows = connection.execute(
        f"SELECT token, sum(passages) FROM tokens WHERE corpus IN ({numbers}) AND token IN ({wanted}) GROUP BY token",
        (*corpora, *tokens),
    )
    return {token: int(count) for token, count in rows}


def _beginning_with(connection: sqlite3.Connection, form: str, corpus: int) -> int:
    table = passages(corpus)
    found = connection.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (expression(form),))
    return int(found.fetchone()[0])


def _telling(weighed: Sequence[_Weighed], all_passages: int) -> Sequence[_Weighed]:
    """The terms that say something: of many passages, those that most of them lack, where there are any such."""
    if all_passages < _MANY:
        return weighed
    telling = [item for item in weighed if 2 * item.held_by <= all_passages]
    return telling if any(item.held_by for item in telling) else weighed


def _candidates(
    connection: sqlite3.Connection, corpus: int, words: Sequence[_Weighed], files: Sequence[str] | None, limit: int
) -> list[_Candidate]:
    """The first passages that hold any of these words, in the order of FTS5."""
    table = passages(corpus)
    forms = dict.fromkeys(form for word in words for form in word.term.forms)
    values: list[object] = [" OR ".join(map(expression, forms))]
    narrowed = ""
    if files is not None:
        narrowed = "AND +rowid IN (SELECT number FROM chunks JOIN json_each(?) ON value = file_id) "
        values.append(json.dumps(list(files)))
    weights = f"'bm25({', '.join(map(str, _COLUMNS))})'"
    rows = connection.execute(
        f"SELECT rowid, name, headings, text FROM {table} WHERE {table} MATCH ? {narrowed}"
        f"AND rank MATCH {weights} ORDER BY rank LIMIT ?",
        [*values, limit],
    )
    return [_Candidate(corpus, chunk, columns) for chunk, *columns in rows]


def _scores(found: Sequence[_Candidate], weighed: Sequence[_Weighed]) -> list[float]:
    """BM25 of each candidate, with a weight for each column; of a term the best alternative counts."""
    if not found:
        return []
    texts = zip(*(candidate.columns for candidate in found), strict=True)
    columns = [_Column(weight, each) for weight, each in zip(_COLUMNS, texts, strict=True)]
    lengths = np.sum([column.lengths for column in columns], axis=0)
    norms = _K1 * (1 - _B + _B * lengths / lengths.mean())
    total = np.zeros(len(found))
    for term, _, rarity in weighed:
        best = np.zeros(len(found))
        for form, weight in term.forms.items():
            often = sum(column.often(form) for column in columns)
            np.maximum(best, weight * often * _SATURATION / (often + norms), out=best)
        total += term.weight * rarity * best
    return total.tolist()
