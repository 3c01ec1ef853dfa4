"""How well a passage answers: BM25 over everything that the caller can see.

FTS5 scores each corpus by how rare a word is in that corpus alone, and takes a word that stands in half of its passages
as worthless, which ranks badly where there are few. Here the rarity of a term is counted over all corpora of the search
together, with a measure that is never zero; FTS5 still says how much of a passage a term is.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolplug_file_search.schema import passages
from toolplug_file_search.terms import Term

NAME_WEIGHT, HEADINGS_WEIGHT, TEXT_WEIGHT = 3.0, 2.5, 1.0
_MANY = 1000
"""From so many passages on, words that most of them hold are left out: they would cost most of the time."""

_SATURATION = 2.2
"""What FTS5's measure of a term in a passage comes to at most (k1 + 1)."""


class Hit(NamedTuple):
    """A chunk of a corpus; `score` is between 0 and 1, and 1 would be all that was asked for, over and over."""

    corpus: int
    chunk: int
    score: float


class _Weighed(NamedTuple):
    """A term; `counts` are the passages that hold it, by corpus, `rarity` holds for all of them."""

    term: Term
    counts: Mapping[int, int]
    rarity: float

    @property
    def held_by(self) -> int:
        """How many passages hold it."""
        return sum(self.counts.values())


def hits(
    connection: sqlite3.Connection, terms: Sequence[Term], corpora: Mapping[int, Sequence[str] | None], limit: int
) -> list[Hit]:
    """The best chunks of these corpora, best first. A corpus may be narrowed to the files with these ids."""
    sizes = {corpus: _count(connection, corpus) for corpus in corpora}
    weighed = _telling([_weighed(connection, term, sizes) for term in terms], sum(sizes.values()))
    best = math.fsum(item.term.weight * item.rarity * _SATURATION for item in weighed)
    found = [
        Hit(corpus, chunk, min(score / best, 1.0))
        for corpus, files in corpora.items()
        for chunk, score in _scored(connection, corpus, sizes[corpus], weighed, files, limit)
    ]
    return sorted(found, key=lambda hit: (-hit.score, hit.corpus, hit.chunk))[:limit]


def _count(connection: sqlite3.Connection, corpus: int) -> int:
    return int(
        connection.execute("SELECT coalesce(sum(chunks), 0) FROM files WHERE corpus = ?", (corpus,)).fetchone()[0]
    )


def _weighed(connection: sqlite3.Connection, term: Term, sizes: Mapping[int, int]) -> _Weighed:
    counts = {corpus: _held_by(connection, corpus, " OR ".join(term.alternatives)) for corpus in sizes}
    holding = sum(counts.values())
    return _Weighed(term, counts, math.log(1 + (sum(sizes.values()) - holding + 0.5) / (holding + 0.5)))


def _held_by(connection: sqlite3.Connection, corpus: int, expression: str) -> int:
    table = passages(corpus)
    found = connection.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (expression,))
    return int(found.fetchone()[0])


def _telling(weighed: Sequence[_Weighed], all_passages: int) -> Sequence[_Weighed]:
    """The terms that say something: of many passages, those that most of them lack, where there are any such."""
    if all_passages < _MANY:
        return weighed
    telling = [item for item in weighed if 2 * item.held_by <= all_passages]
    return telling if any(item.held_by for item in telling) else weighed


def _scored(
    connection: sqlite3.Connection,
    corpus: int,
    size: int,
    weighed: Sequence[_Weighed],
    files: Sequence[str] | None,
    limit: int,
) -> list[tuple[int, float]]:
    """Chunks with their sums over the terms, FTS5's own measure of rarity exchanged for ours."""
    table = passages(corpus)
    one = (
        f"SELECT ? AS term, rowid AS chunk, -bm25({table}, {NAME_WEIGHT}, {HEADINGS_WEIGHT}, {TEXT_WEIGHT}) * ? "
        f"AS score FROM {table} WHERE {table} MATCH ?"
    )
    values: list[object] = []
    for place, item in enumerate(weighed):
        for expression, weight in item.term.alternatives.items():
            several = len(item.term.alternatives) > 1
            count = _held_by(connection, corpus, expression) if several else item.counts[corpus]
            if count:
                factor = weight * item.term.weight * item.rarity / _rarity_in_fts5(size, count)
                values += [place, factor, expression]
    if not values:
        return []
    each = " UNION ALL ".join([one] * (len(values) // 3))  # bm25() cannot stand in a sum
    best = "scores"
    if any(len(item.term.alternatives) > 1 for item in weighed):  # of a term the best alternative counts
        best = "(SELECT chunk, max(score) AS score FROM scores GROUP BY term, chunk)"
    narrowed = ""
    if files is not None:
        narrowed = "WHERE chunk IN (SELECT number FROM chunks JOIN json_each(?) ON value = file_id) "
        values.append(json.dumps(list(files)))
    rows = connection.execute(
        f"WITH scores AS MATERIALIZED ({each}) SELECT chunk, sum(score) AS total FROM {best} {narrowed}"
        "GROUP BY chunk ORDER BY total DESC, chunk LIMIT ?",
        [*values, limit],
    )
    return [(int(chunk), float(score)) for chunk, score in rows]


def _rarity_in_fts5(size: int, holding: int) -> float:
    """What FTS5's bm25() multiplies with for one phrase (https://www.sqlite.org/fts5.html#the_bm25_function)."""
    rarity = math.log((size - holding + 0.5) / (holding + 0.5))
    return rarity if rarity > 0 else 1e-6
