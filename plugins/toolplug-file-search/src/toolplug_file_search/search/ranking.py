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
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from toolplug_file_search.search.terms import Term, expression
from toolplug_file_search.storage.schema import passages

COLUMNS = (3.0, 2.5, 1.0)
"""Weights of the name, the headings and the text."""
CANDIDATES = 200
_MANY = 1000
"""From so many passages on, words that most of them hold are left out: they would cost most of the time."""
K1, B = 1.2, 0.75
SATURATION = K1 + 1
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


class Weighed(NamedTuple):
    """A term; `held_by` so many passages of all corpora."""

    term: Term
    held_by: int
    rarity: float


class Candidate(NamedTuple):
    """A passage that may answer, with its three columns as the index keeps them."""

    corpus: int
    chunk: int
    columns: Sequence[str]


def coverage(hit: Hit) -> float:
    """How much of the query a passage says, 0 to 1: all of it, once in a passage of average length, is 1."""
    return min(1.0, hit.score * SATURATION)


def hits(
    connection: sqlite3.Connection, terms: Sequence[Term], corpora: Mapping[int, Sequence[str] | None], limit: int
) -> list[Hit]:
    """The best chunks of these corpora, best first. A corpus may be narrowed to the files with these ids."""
    size = sum(_count(connection, corpus) for corpus in corpora)
    words = _weigh(connection, [term for term in terms if not term.neighbours], list(corpora), size)
    rarities = {word.term.name: word.rarity for word in words}
    telling = _telling(words, size)
    pairs = [
        Weighed(term, 0, max(rarities.get(name, 0.0) for name in term.neighbours)) for term in terms if term.neighbours
    ]
    weighed = [*telling, *pairs]
    best = math.fsum(item.term.weight * item.rarity * SATURATION for item in weighed)
    found = [
        candidate
        for corpus, files in corpora.items()
        for candidate in _candidates(connection, corpus, telling, files, max(limit, CANDIDATES))
    ]
    # numpy takes a third of a second, so the first search imports it, and not the start of a host
    scores: Callable[..., list[float]] = import_module("toolplug_file_search.search.scoring").scores
    ranked = [
        Hit(candidate.corpus, candidate.chunk, min(score / best, 1.0))
        for candidate, score in zip(found, scores(found, weighed), strict=True)
    ]
    return sorted(ranked, key=lambda hit: (-hit.score, hit.corpus, hit.chunk))[:limit]


def _count(connection: sqlite3.Connection, corpus: int) -> int:
    return int(
        connection.execute("SELECT coalesce(sum(chunks), 0) FROM files WHERE corpus = ?", (corpus,)).fetchone()[0]
    )


def _weigh(connection: sqlite3.Connection, terms: Sequence[Term], corpora: Sequence[int], size: int) -> list[Weighed]:
    forms = {form for term in terms for form in term.forms}
    counts = _held_by(connection, [form for form in forms if not form.endswith("*")], corpora)
    for form in forms:
        if form.endswith("*"):
            counts[form] = sum(_beginning_with(connection, form, corpus) for corpus in corpora)
    found: list[Weighed] = []
    for term in terms:
        holding = min(sum(counts.get(form, 0) for form in term.forms), size)
        found.append(Weighed(term, holding, math.log(1 + (size - holding + 0.5) / (holding + 0.5))))
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


def _telling(weighed: Sequence[Weighed], all_passages: int) -> Sequence[Weighed]:
    """The terms that say something: of many passages, those that most of them lack, where there are any such."""
    if all_passages < _MANY:
        return weighed
    telling = [item for item in weighed if 2 * item.held_by <= all_passages]
    return telling if any(item.held_by for item in telling) else weighed


def _candidates(
    connection: sqlite3.Connection, corpus: int, words: Sequence[Weighed], files: Sequence[str] | None, limit: int
) -> list[Candidate]:
    """The first passages that hold any of these words, in the order of FTS5."""
    table = passages(corpus)
    forms = dict.fromkeys(form for word in words for form in word.term.forms)
    values: list[object] = [" OR ".join(map(expression, forms))]
    narrowed = ""
    if files is not None:
        narrowed = "AND +rowid IN (SELECT number FROM chunks JOIN json_each(?) ON value = file_id) "
        values.append(json.dumps(list(files)))
    weights = f"'bm25({', '.join(map(str, COLUMNS))})'"
    rows = connection.execute(
        f"SELECT rowid, name, headings, text FROM {table} WHERE {table} MATCH ? {narrowed}"
        f"AND rank MATCH {weights} ORDER BY rank LIMIT ?",
        [*values, limit],
    )
    return [Candidate(corpus, chunk, columns) for chunk, *columns in rows]
