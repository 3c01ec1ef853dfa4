"""One search: which corpora and files are looked through, and what is found, with its place."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolplug_file_search.database import Database
from toolplug_file_search.library import NotThere
from toolplug_file_search.ranking import Hit, hits
from toolplug_file_search.records import Caller
from toolplug_file_search.schema import corpus_number, passages
from toolplug_file_search.terms import terms


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
    """A file that can be searched. `stores` are the vector stores that hold it; the operator's files are in none."""

    name: str
    id: str
    bytes: int
    stores: tuple[str, ...]


def search(
    database: Database, caller: Caller, query: str, *, stores: Sequence[str] | None, limit: int, at_least: float = 0.0
) -> list[Passage]:
    """The best passages, best first.

    `stores`: only what is in these vector stores; None: all files that the caller sees, and the operator's. Blocks.
    Raises `NotThere` for a store that the caller does not see, and `IndexUnavailable`.
    """
    asked = terms(query)
    with database.reading() as connection:
        corpora = _corpora(connection, caller, stores)
        if not asked or not corpora:
            return []
        found = hits(connection, asked, corpora, limit)
        return [_passage(connection, hit) for hit in found if hit.score >= at_least]


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
            "SELECT name, id, bytes, (SELECT group_concat(store_id, ' ') FROM members WHERE file_id = files.id) "
            f"{scope}{bound} ORDER BY name, id LIMIT ?",
            [*values, limit],
        )
        return [
            ListedFile(name=name, id=file_id, bytes=size, stores=tuple((stores or "").split()))
            for name, file_id, size, stores in rows
        ], total


def _corpora(
    connection: sqlite3.Connection, caller: Caller, stores: Sequence[str] | None
) -> Mapping[int, Sequence[str] | None]:
    """The corpora to look through, as far as there is anything in them, and of the tenant's the files where not all."""
    own, operators = corpus_number(connection, caller.tenant), corpus_number(connection, None)
    if stores is None:
        files = _files(connection, own, caller, "chunks > 0", ()) if caller.own_only else None
        return {number: which for number, which in ((own, files), (operators, None)) if number is not None}
    seen = "SELECT 1 FROM stores WHERE corpus IS ? AND owner IS coalesce(?, owner) AND id = ?"
    for store in stores:
        if not connection.execute(seen, (own, caller.only, store)).fetchone():
            raise NotThere("vector store", store)
    if own is None or not stores:
        return {}
    marks = ", ".join("?" * len(stores))
    held = f"id IN (SELECT file_id FROM members WHERE store_id IN ({marks}))"
    return {own: _files(connection, own, caller, held, stores)}


def _files(
    connection: sqlite3.Connection, corpus: int | None, caller: Caller, condition: str, values: Sequence[str]
) -> list[str]:
    """The ids of the files that the caller sees and that the condition holds for."""
    rows = connection.execute(
        f"SELECT id FROM files WHERE corpus IS ? AND owner IS coalesce(?, owner) AND {condition}",
        (corpus, caller.only, *values),
    )
    return [row[0] for row in rows]


def _passage(connection: sqlite3.Connection, hit: Hit) -> Passage:
    table = passages(hit.corpus)
    name, file_id, text, headings, first_line, last_line, start, end = connection.execute(
        f"SELECT files.name, files.id, {table}.text, {table}.headings, first_line, last_line, start, stop "
        f"FROM chunks JOIN files ON files.id = file_id JOIN {table} ON {table}.rowid = number WHERE number = ?",
        (hit.chunk,),
    ).fetchone()
    return Passage(
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
