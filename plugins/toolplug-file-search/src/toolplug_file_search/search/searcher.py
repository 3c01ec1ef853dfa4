"""Searches: which corpora and files are searched, and the passages that are found, with their places."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolplug_file_search.documents.analysis import Analyzer
from toolplug_file_search.search.filters import Filter
from toolplug_file_search.search.meaning import Meaning, fuse
from toolplug_file_search.search.options import Narrowed
from toolplug_file_search.search.ranking import Hit, hits
from toolplug_file_search.search.reranking import CANDIDATES, Reranker, RerankingFailed
from toolplug_file_search.search.terms import terms
from toolplug_file_search.storage import selection
from toolplug_file_search.storage.database import Database, TimeLimit
from toolplug_file_search.storage.records import Caller
from toolplug_file_search.storage.schema import corpus_number
from toolplug_file_search.storage.selection import NotThere, scope_of
from toolplug_file_search.vectors.embeddings import EmbeddingFailed, Vector
from toolplug_file_search.vectors.protocol import VectorsUnavailable

MAX_SHOWN_STORES = 20
"""Vector stores of a file that a list names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A piece of a file. `start` and `end` count characters from 0, lines count from 1; `score` is 0 to 1."""

    file: str
    file_id: str
    text: str
    headings: str
    score: float
    first_line: int
    last_line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file that can be searched.

    `stores` are the first vector stores that hold it; the operator's files are in none. `left_out` says what of the
    file could not be read, empty for nothing.
    """

    name: str
    id: str
    bytes: int
    stores: tuple[str, ...]
    left_out: str


class Found(NamedTuple):
    """Passages, best first. `note` says what did not take part; empty where all did."""

    passages: Sequence[Passage]
    note: str = ""


class Searcher:
    """Searches by words, and by meaning where there are vectors. Blocks.

    Raises `NotThere` for a vector store that the caller does not see, and `IndexUnavailable`.
    """

    def __init__(
        self, database: Database, analyzer: Analyzer, meaning: Meaning | None, reranker: Reranker | None
    ) -> None:
        self._database = database
        self._analyzer = analyzer
        self._meaning = meaning
        self._reranker = reranker

    def search(self, caller: Caller, query: str, asked: Narrowed, limit: TimeLimit) -> Found:
        """The best passages of these vector stores; of all files that the caller sees, if none are named."""
        notes: list[str] = []
        vector = self._vector(query, asked, notes)
        limit.check()
        depth = max(asked.limit, CANDIDATES) if self._reranker or vector is not None else asked.limit
        with self._database.reading(limit) as connection:
            corpora = _corpora(connection, caller, asked.stores, asked.filters)
            near = None if vector is None else self._nearest(connection, vector, corpora, depth, notes)
            words = terms(query, connection, list(corpora), self._analyzer, limit) if corpora else []
            by_words = words and (asked.weights.words > 0 or near is None)
            ranked = hits(connection, words, corpora, depth) if by_words else []
            if near is not None:
                ranked = fuse(ranked, near, asked.weights)
            shown = depth if self._reranker is not None and asked.reranked else asked.limit
            passages = _passages(connection, [hit for hit in ranked[:shown] if hit.score >= asked.at_least])
        if self._reranker is not None and asked.reranked and len(passages) > 1:
            limit.check()
            try:
                order = self._reranker.order(query, [passage.text for passage in passages])
                passages = [passages[place] for place in order]
            except RerankingFailed as error:
                notes.append(f"not ranked again: {error}")
        self._touch(asked.stores)
        return Found(passages[: asked.limit], "; ".join(notes))

    def _vector(self, query: str, asked: Narrowed, notes: list[str]) -> Vector | None:
        if self._meaning is None or asked.weights.meaning <= 0:
            return None
        try:
            return self._meaning.embed(query)
        except EmbeddingFailed as error:
            notes.append(f"ranked by words alone: {error}")
            return None

    def _nearest(
        self,
        connection: sqlite3.Connection,
        vector: Vector,
        corpora: Mapping[int, Sequence[str] | None],
        depth: int,
        notes: list[str],
    ) -> list[Hit] | None:
        """The ranking by meaning; None while vectors cannot be read."""
        if self._meaning is None:
            return None
        among = {corpus: _chunks(connection, files) for corpus, files in corpora.items()}
        try:
            return _still_there(connection, self._meaning.nearest(vector, among, depth))
        except VectorsUnavailable as error:
            notes.append(f"ranked by words alone: {error}")
            return None

    def _touch(self, stores: Sequence[str] | None) -> None:
        """Note the use of vector stores that expire, at most once a minute."""
        if not stores:
            return
        marks = ", ".join("?" * len(stores))
        stale = f"id IN ({marks}) AND expires_days IS NOT NULL AND coalesce(active_at, 0) < unixepoch() - 60"
        with self._database.reading() as connection:
            any_stale = connection.execute(f"SELECT 1 FROM stores WHERE {stale}", list(stores)).fetchone()
        if any_stale:
            with self._database.writing() as connection:
                connection.execute(f"UPDATE stores SET active_at = unixepoch() WHERE {stale}", list(stores))


def _chunks(connection: sqlite3.Connection, files: Sequence[str] | None) -> Sequence[int] | None:
    if files is None:
        return None
    rows = connection.execute(
        "SELECT number FROM chunks JOIN json_each(?) ON value = file_id", (json.dumps(list(files)),)
    )
    return [row[0] for row in rows]


def _still_there(connection: sqlite3.Connection, found: Sequence[Hit]) -> list[Hit]:
    """The passages that were not deleted since their vectors were kept."""
    rows = connection.execute(
        "SELECT number FROM chunks JOIN json_each(?) ON value = number", (json.dumps([hit.chunk for hit in found]),)
    )
    there = {row[0] for row in rows}
    return [hit for hit in found if hit.chunk in there]


def searchable_files(
    database: Database, caller: Caller, *, after: str = "", limit: int
) -> tuple[list[ListedFile], int]:
    """The files that the caller can search, by name and id, after this id; and how many there are in all. Blocks."""
    with database.reading() as connection:
        own, operators = corpus_number(connection, caller.tenant), corpus_number(connection, None)
        scope = "FROM files WHERE (corpus = ? OR corpus = ? AND owner IS coalesce(?, owner)) AND chunks > 0"
        visible = (operators, own, caller.only)
        total: int = connection.execute(f"SELECT count(*) {scope}", visible).fetchone()[0]
        bound = ""
        values: list[object] = [*visible]
        if after:
            row = connection.execute(f"SELECT name, id {scope} AND id = ?", [*visible, after]).fetchone()
            if row is None:
                raise NotThere("file", after)
            bound = " AND (name, id) > (?, ?)"
            values += row
        rows = connection.execute(
            "SELECT name, id, bytes, (SELECT group_concat(store_id, ' ') FROM (SELECT store_id FROM members "
            f"WHERE file_id = files.id ORDER BY place LIMIT {MAX_SHOWN_STORES})), left_out "
            f"{scope}{bound} ORDER BY name, id LIMIT ?",
            [*values, limit],
        )
        return [
            ListedFile(name=name, id=file_id, bytes=size, stores=tuple((stores or "").split()), left_out=left_out or "")
            for name, file_id, size, stores, left_out in rows
        ], total


class Skipped(NamedTuple):
    """A file that is not searched, and why."""

    file: str
    reason: str


class Left(NamedTuple):
    """What a search does not find: files that cannot be searched, of all `total` the first, and those that wait."""

    skipped: Sequence[Skipped]
    total: int
    waiting: int


def left_out(database: Database, caller: Caller, *, limit: int) -> Left:
    """The operator's files and the caller's own that are not searched, by name. Blocks."""
    own_files = "FROM files WHERE corpus IS ? AND owner IS coalesce(?, owner) AND status"
    with database.reading() as connection:
        own = (corpus_number(connection, caller.tenant), caller.only)
        every = f"SELECT name, reason FROM skipped UNION ALL SELECT name, error {own_files} = 'failed'"
        rows = connection.execute(f"{every} ORDER BY name LIMIT ?", [*own, limit]).fetchall()
        total: int = connection.execute(f"SELECT count(*) FROM ({every})", own).fetchone()[0]
        waiting: int = connection.execute(f"SELECT count(*) {own_files} = 'waiting'", own).fetchone()[0]
    return Left([Skipped(name, reason) for name, reason in rows], total, waiting)


def _corpora(
    connection: sqlite3.Connection, caller: Caller, stores: Sequence[str] | None, filters: Filter | None
) -> Mapping[int, Sequence[str] | None]:
    """The corpora to look through, as far as there is anything in them, and of the tenant's the files where not all.

    Only files in vector stores have attributes: a filter leaves out the operator's.
    """
    own, operators = corpus_number(connection, caller.tenant), corpus_number(connection, None)
    if stores is None and filters is None:
        narrow = caller.own_only or _any_expired(connection, own)
        files = _files(connection, own, caller, None, None) if narrow else None
        return {number: which for number, which in ((own, files), (operators, None)) if number is not None}
    for store in stores or ():
        if selection.store(connection, scope_of(connection, caller), store).expired:
            raise NotThere("vector store that has not expired", store)
    if own is None or (stores is not None and not stores):
        return {}
    return {own: _files(connection, own, caller, stores, filters)}


def _any_expired(connection: sqlite3.Connection, corpus: int | None) -> bool:
    """Is there anything that has expired and was not deleted yet."""
    files = "SELECT 1 FROM files WHERE corpus IS ? AND expires_at <= unixepoch()"
    stores = f"SELECT 1 FROM stores WHERE corpus IS ? AND {selection.EXPIRED}"
    return connection.execute(f"{files} UNION ALL {stores} LIMIT 1", (corpus, corpus)).fetchone() is not None


def _files(
    connection: sqlite3.Connection,
    corpus: int | None,
    caller: Caller,
    stores: Sequence[str] | None,
    filters: Filter | None,
) -> list[str]:
    """The ids of the files in vector stores, in these if any are named, that the caller sees and that pass the filter.

    The filter is applied here: SQLite would read a file's attributes again for each value that it compares with.
    """
    named = "" if stores is None else f" AND store_id IN ({', '.join('?' * len(stores))})"
    rows = connection.execute(
        "SELECT files.id, attributes FROM members JOIN files ON files.id = file_id JOIN stores ON stores.id = store_id "
        f"WHERE files.corpus IS ? AND files.owner IS coalesce(?, files.owner) AND {selection.LIVE} "
        f"AND NOT cancelled AND NOT ({selection.EXPIRED}){named}",
        (corpus, caller.only, *(stores or ())),
    )
    return list(dict.fromkeys(file for file, given in rows if filters is None or filters.matches(json.loads(given))))


def _passages(connection: sqlite3.Connection, found: Sequence[Hit]) -> list[Passage]:
    rows = connection.execute(
        "SELECT number, files.name, files.id, text, headings, first_line, last_line, start, stop "
        "FROM json_each(?) JOIN chunks ON number = value JOIN files ON files.id = file_id",
        (json.dumps([hit.chunk for hit in found]),),
    )
    places = {number: row for number, *row in rows}
    passages: list[Passage] = []
    for hit in found:
        name, file_id, text, headings, first_line, last_line, start, end = places[hit.chunk]
        passages.append(
            Passage(
                file=name,
                file_id=file_id,
                text=text,
                headings=headings,
                score=round(hit.score, 4),
                first_line=first_line,
                last_line=last_line,
                start=start,
                end=end,
            )
        )
    return passages
