"""Putting documents into the full-text index and taking them out, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence

from toolplug_file_search.documents.reader import Prepared
from toolplug_file_search.storage.schema import passages, trigrams


def put_in(connection: sqlite3.Connection, corpus: int, file_id: str, prepared: Prepared) -> str:
    """Make a file searchable. Return what of it could not be read, empty for nothing.

    The document comes part by part, so that memory does not depend on it. Raises `ReadingStopped`.
    """
    chunks, left_out = 0, ""
    for part in prepared.parts():
        if "passage" in part:
            _put_passage(connection, corpus, file_id, prepared.name, part["passage"], part["words"])
        elif "surfaces" in part:
            _put_words(connection, corpus, part["surfaces"], compounds=prepared.compounds)
        elif "tokens" in part:
            connection.executemany(
                "INSERT INTO tokens (corpus, token, passages) VALUES (?, ?, ?) "
                "ON CONFLICT (corpus, token) DO UPDATE SET passages = passages + excluded.passages",
                [(corpus, token, count) for token, count in part["tokens"]],
            )
        else:
            chunks, left_out = part["end"], part["left_out"]
    connection.execute(
        "UPDATE files SET chunks = ?, language = ?, status = 'searchable', error_code = NULL, error = NULL, "
        "tries = 0, left_out = ? WHERE id = ?",
        (chunks, prepared.language, left_out or None, file_id),
    )
    return left_out


def _put_passage(
    connection: sqlite3.Connection,
    corpus: int,
    file_id: str,
    name: str,
    passage: Sequence[object],
    words: Sequence[str],
) -> None:
    text, headings, *place = passage
    number = connection.execute(
        "INSERT INTO chunks (file_id, text, headings, start, stop, first_line, last_line) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (file_id, text, headings, *place),
    ).lastrowid
    connection.execute(
        f"INSERT INTO {passages(corpus)} (rowid, name, headings, text) VALUES (?, ?, ?, ?)", (number, name, *words)
    )


def _put_words(
    connection: sqlite3.Connection, corpus: int, surfaces: Iterable[Sequence[str]], *, compounds: bool
) -> None:
    for surface, token in surfaces:
        added = connection.execute(
            "INSERT OR IGNORE INTO words (corpus, surface, token, compounds) VALUES (?, ?, ?, ?)",
            (corpus, surface, token, compounds),
        )
        if added.rowcount == 1:
            connection.execute(
                f"INSERT INTO {trigrams(corpus)} (rowid, surface) VALUES (?, ?)", (added.lastrowid, surface)
            )


def take_out(connection: sqlite3.Connection, corpus: int, file_id: str) -> None:
    """Make a file unsearchable, and forget the words that only it has; the file stays."""
    table = passages(corpus)
    rows = connection.execute(
        f"SELECT {table}.name, {table}.headings, {table}.text FROM {table} "
        f"JOIN chunks ON number = {table}.rowid WHERE file_id = ?",
        (file_id,),
    )
    counted = Counter(token for columns in rows for token in set(" ".join(columns).split()))
    if counted:
        connection.execute(
            f"DELETE FROM {table} WHERE rowid IN (SELECT number FROM chunks WHERE file_id = ?)", (file_id,)
        )
        connection.execute("DELETE FROM chunks WHERE file_id = ?", (file_id,))
        _forget_words(connection, corpus, counted)
    connection.execute(
        "UPDATE files SET chunks = 0, status = 'stored', error_code = NULL, error = NULL, tries = 0, left_out = NULL "
        "WHERE id = ?",
        (file_id,),
    )


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
