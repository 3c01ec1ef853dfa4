"""Putting documents into the full-text index and taking them out, within the caller's transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from toolplug_file_search.chunks import chunks
from toolplug_file_search.documents import is_markdown
from toolplug_file_search.schema import passages

HEADING_SEPARATOR = " > "


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """How documents are cut, in characters."""

    size: int
    overlap: int


def put_in(connection: sqlite3.Connection, corpus: int, file_id: str, name: str, text: str, cutting: Cutting) -> int:
    """Make a file searchable and return how many chunks it has."""
    count = 0
    for chunk in chunks(text, size=cutting.size, overlap=cutting.overlap, markdown=is_markdown(name)):
        cursor = connection.execute(
            "INSERT INTO chunks (file_id, start, stop, first_line, last_line) VALUES (?, ?, ?, ?, ?)",
            (file_id, chunk.start, chunk.end, chunk.first_line, chunk.last_line),
        )
        connection.execute(
            f"INSERT INTO {passages(corpus)} (rowid, name, headings, text) VALUES (?, ?, ?, ?)",
            (cursor.lastrowid, name, HEADING_SEPARATOR.join(chunk.headings), chunk.text),
        )
        count += 1
    connection.execute("UPDATE files SET chunks = ? WHERE id = ?", (count, file_id))
    return count


def take_out(connection: sqlite3.Connection, corpus: int, file_id: str) -> None:
    """Make a file unsearchable; the file stays."""
    connection.execute(
        f"DELETE FROM {passages(corpus)} WHERE rowid IN (SELECT number FROM chunks WHERE file_id = ?)", (file_id,)
    )
    connection.execute("DELETE FROM chunks WHERE file_id = ?", (file_id,))
    connection.execute("UPDATE files SET chunks = 0 WHERE id = ?", (file_id,))


def take_out_unused(connection: sqlite3.Connection, corpus: int) -> None:
    """Make every file of a tenant unsearchable that is in none of its vector stores any more."""
    unused = connection.execute(
        "SELECT id FROM files WHERE corpus = ? AND chunks > 0 "
        "AND NOT EXISTS (SELECT 1 FROM members WHERE members.file_id = files.id)",
        (corpus,),
    ).fetchall()
    for (file_id,) in unused:
        take_out(connection, corpus, file_id)
