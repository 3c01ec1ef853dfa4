"""The tables of the index and their version.

A *corpus* is what is ranked together: one for each tenant, and one, without tenant, for the operator's own files. Each
has a full-text table of its own, so that no score says anything about another tenant's texts.
"""

from __future__ import annotations

import sqlite3

VERSION = 2

_TABLES = """
CREATE TABLE corpora (
    number INTEGER PRIMARY KEY,
    tenant TEXT UNIQUE          -- NULL: the operator's files
);
CREATE TABLE stores (
    place INTEGER PRIMARY KEY AUTOINCREMENT,    -- order of listing
    id TEXT NOT NULL UNIQUE,
    corpus INTEGER NOT NULL REFERENCES corpora,
    name TEXT NOT NULL,
    metadata TEXT NOT NULL,     -- JSON
    created_at INTEGER NOT NULL,
    owner TEXT                  -- the subject that made it; NULL: made before version 2
);
CREATE TABLE files (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    corpus INTEGER NOT NULL REFERENCES corpora,
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    content BLOB,               -- NULL: stays where the operator has it
    fingerprint TEXT NOT NULL,  -- SHA-256 of the content
    modified_ns INTEGER,        -- of the operator's file
    created_at INTEGER NOT NULL,
    chunks INTEGER NOT NULL DEFAULT 0,          -- in the index, 0 where it is not searchable
    owner TEXT                  -- the subject that uploaded it; NULL: the operator's, or uploaded before version 2
);
CREATE INDEX files_of_corpus ON files (corpus, name);
CREATE TABLE members (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    store_id TEXT NOT NULL REFERENCES stores (id) ON DELETE CASCADE,
    file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    attributes TEXT NOT NULL,   -- JSON
    created_at INTEGER NOT NULL,
    UNIQUE (store_id, file_id)
);
CREATE INDEX members_of_file ON members (file_id);
CREATE TABLE chunks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,   -- rowid of the full-text table
    file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    first_line INTEGER NOT NULL,
    last_line INTEGER NOT NULL
);
CREATE INDEX chunks_of_file ON chunks (file_id);
"""


_FROM_VERSION_1 = ("ALTER TABLE stores ADD COLUMN owner TEXT", "ALTER TABLE files ADD COLUMN owner TEXT")


class WrongVersion(Exception):
    """The file was written by a newer version of this package, or is none of its files."""


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, and bring those of version 1 up to date, whole or not at all.

    Raises `WrongVersion`, and leaves the file as it is, where it has others.
    """
    if _version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    version = _version(connection)
    if version < VERSION:
        for statement in _TABLES.split(";\n") if version == 0 else _FROM_VERSION_1:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    """0: nothing is in the file yet."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not 0 <= version <= VERSION or (version == 0 and tables):
        raise WrongVersion(f"its tables have version {version}, this package knows versions up to {VERSION}")
    return version


def passages(corpus: int) -> str:
    """The name of the full-text table of a corpus."""
    return f"passages_{corpus:d}"


def corpus_number(connection: sqlite3.Connection, tenant: str | None) -> int | None:
    """The number of a tenant's corpus (None: the operator's); None where it has none yet."""
    row = connection.execute("SELECT number FROM corpora WHERE tenant IS ?", (tenant,)).fetchone()
    return None if row is None else int(row[0])


def made_corpus(connection: sqlite3.Connection, tenant: str | None) -> int:
    """The number of a tenant's corpus, which is made where there is none; within a writing transaction."""
    number = corpus_number(connection, tenant)
    if number is None:
        number = connection.execute("INSERT INTO corpora (tenant) VALUES (?) RETURNING number", (tenant,)).fetchone()[0]
        connection.execute(
            f"CREATE VIRTUAL TABLE {passages(number)} USING fts5 "
            "(name, headings, text, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
    return number
