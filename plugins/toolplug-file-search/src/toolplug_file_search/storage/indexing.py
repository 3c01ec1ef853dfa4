"""Putting documents into the full-text index and taking them out, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from toolplug_file_search.documents.analysis import COMPOUNDING, Analyzer, without_accents, words
from toolplug_file_search.documents.chunks import Chunk, chunks
from toolplug_file_search.documents.conversion import Document
from toolplug_file_search.storage.schema import passages, trigrams

HEADING_SEPARATOR = " > "


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """How documents are cut, in characters."""

    size: int
    overlap: int


class Passage(NamedTuple):
    """A chunk, and its words and those of its headings as the index keeps them."""

    chunk: Chunk
    headings: str
    text: str


class Prepared(NamedTuple):
    """A document that is ready for the index; `surfaces` are its different words with their tokens."""

    language: str
    name: str
    passages: Sequence[Passage]
    surfaces: Sequence[tuple[str, str]]


def prepare(name: str, document: Document, cutting: Cutting, analyzer: Analyzer) -> Prepared:
    """Cut a document and bring its words into their form; what takes long of an ingest, without a transaction."""
    language = analyzer.language(document.text)
    surfaces: dict[tuple[str, str], None] = {}

    def analyzed(text: str) -> str:
        found = list(words(text))
        tokens = analyzer.tokens(found, language)
        for word, token in zip(found, tokens, strict=True):
            if not word.dense:
                surfaces.setdefault((without_accents(word.text), token))
        return " ".join(tokens)

    cut = chunks(document.text, size=cutting.size, overlap=cutting.overlap, layout=document.layout)
    found = [Passage(each, analyzed(" ".join(each.headings)), analyzed(each.text)) for each in cut]
    shown = analyzed(PurePosixPath(name).with_suffix("").as_posix())
    return Prepared(language, shown, found, list(surfaces))


def put_in(connection: sqlite3.Connection, corpus: int, file_id: str, prepared: Prepared) -> None:
    """Make a file searchable."""
    table = passages(corpus)
    counted = Counter[str]()
    for chunk, headings, text in prepared.passages:
        counted.update(_different((prepared.name, headings, text)))
        number = connection.execute(
            "INSERT INTO chunks (file_id, start, stop, first_line, last_line, headings, text) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                file_id,
                chunk.start,
                chunk.end,
                chunk.first_line,
                chunk.last_line,
                HEADING_SEPARATOR.join(chunk.headings),
                chunk.text,
            ),
        ).lastrowid
        connection.execute(
            f"INSERT INTO {table} (rowid, name, headings, text) VALUES (?, ?, ?, ?)",
            (number, prepared.name, headings, text),
        )
    compounds = prepared.language in COMPOUNDING
    for surface, token in prepared.surfaces:
        added = connection.execute(
            "INSERT OR IGNORE INTO words (corpus, surface, token, compounds) VALUES (?, ?, ?, ?)",
            (corpus, surface, token, compounds),
        )
        if added.rowcount == 1:
            connection.execute(
                f"INSERT INTO {trigrams(corpus)} (rowid, surface) VALUES (?, ?)", (added.lastrowid, surface)
            )
    connection.executemany(
        "INSERT INTO tokens (corpus, token, passages) VALUES (?, ?, ?) "
        "ON CONFLICT (corpus, token) DO UPDATE SET passages = passages + excluded.passages",
        [(corpus, token, count) for token, count in counted.items()],
    )
    connection.execute(
        "UPDATE files SET chunks = ?, language = ?, status = 'searchable', error_code = NULL, error = NULL "
        "WHERE id = ?",
        (len(prepared.passages), prepared.language, file_id),
    )


def take_out(connection: sqlite3.Connection, corpus: int, file_id: str) -> None:
    """Make a file unsearchable, and forget the words that only it has; the file stays."""
    table = passages(corpus)
    rows = connection.execute(
        f"SELECT {table}.name, {table}.headings, {table}.text FROM {table} "
        f"JOIN chunks ON number = {table}.rowid WHERE file_id = ?",
        (file_id,),
    ).fetchall()
    if rows:
        connection.execute(
            f"DELETE FROM {table} WHERE rowid IN (SELECT number FROM chunks WHERE file_id = ?)", (file_id,)
        )
        connection.execute("DELETE FROM chunks WHERE file_id = ?", (file_id,))
        _forget_words(connection, corpus, Counter(token for columns in rows for token in _different(columns)))
    connection.execute(
        "UPDATE files SET chunks = 0, status = 'stored', error_code = NULL, error = NULL WHERE id = ?", (file_id,)
    )


def _different(columns: Iterable[str]) -> set[str]:
    """The different tokens of a passage."""
    return set(" ".join(columns).split())


def _forget_words(connection: sqlite3.Connection, corpus: int, counted: Counter[str]) -> None:
    connection.executemany(
        "UPDATE tokens SET passages = passages - ? WHERE corpus = ? AND token = ?",
        [(count, corpus, token) for token, count in counted.items()],
    )
    unused = "corpus = ? AND token IN (SELECT token FROM tokens WHERE corpus = ? AND passages <= 0)"
    scope = (corpus, corpus)
    connection.execute(
        f"DELETE FROM {trigrams(corpus)} WHERE rowid IN (SELECT number FROM words WHERE {unused})", scope
    )
    connection.execute(f"DELETE FROM words WHERE {unused}", scope)
    connection.execute("DELETE FROM tokens WHERE corpus = ? AND passages <= 0", (corpus,))


def take_out_unused(connection: sqlite3.Connection, corpus: int) -> None:
    """Make those files of a tenant unsearchable that are no longer in a vector store."""
    unused = connection.execute(
        "SELECT id FROM files WHERE corpus = ? AND status != 'stored' "
        "AND NOT EXISTS (SELECT 1 FROM members WHERE members.file_id = files.id AND NOT cancelled)",
        (corpus,),
    ).fetchall()
    for (file_id,) in unused:
        take_out(connection, corpus, file_id)
