"""One search: which corpora and files are looked through, and what is found, with its place."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolplug_file_search.database import Database
from toolplug_file_search.library import NotThere
from toolplug_file_search.ranking import Hit, hits
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
    database: Database, tenant: str, query: str, *, stores: Sequence[str] | None, limit: int, at_least: float = 0.0
) -> list[Passage]:
    """The best passages, best first.

    `stores`: only what is in these vector stores of the tenant; None: all its files and the operator's. Blocks. Raises
    `NotThere` for a store that the tenant does not have, and `IndexUnavailable`.
    """
    asked = terms(query)
    with database.reading() as connection:
        corpora = _corpora(connection, tenant, stores)
        if not asked or not corpora:
            return []
        found = hits(connection, asked, corpora, limit)
        return [_passage(connection, hit) for hit in found if hit.score >= at_least]


def searchable_files(database: Database, tenant: str, *, after: str = "", limit: int) -> tuple[list[ListedFile], int]:
    """The files that the tenant can search, by name and id, after this id; and how many there are in all. Blocks."""
    with database.reading() as connection:
        visible = _visible(connection, tenant)
        marks = ", ".join("?" * len(visible))
        scope = f"FROM files WHERE corpus IN ({marks}) AND chunks > 0"
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


def _visible(connection: sqlite3.Connection, tenant: str) -> list[int]:
    """The tenant's corpus and the operator's, as far as there is anything in them."""
    numbers = (corpus_number(connection, tenant), corpus_number(connection, None))
    return [number for number in numbers if number is not None]


def _corpora(
    connection: sqlite3.Connection, tenant: str, stores: Sequence[str] | None
) -> Mapping[int, Sequence[str] | None]:
    if stores is None:
        return dict.fromkeys(_visible(connection, tenant))
    own = corpus_number(connection, tenant)
    for store in stores:
        if not connection.execute("SELECT 1 FROM stores WHERE corpus IS ? AND id = ?", (own, store)).fetchone():
            raise NotThere("vector store", store)
    if own is None or not stores:
        return {}
    marks = ", ".join("?" * len(stores))
    rows = connection.execute(f"SELECT DISTINCT file_id FROM members WHERE store_id IN ({marks})", [*stores])
    return {own: [row[0] for row in rows]}


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
