"""The tables of the index and their version.

A *corpus* is what is ranked together: one for each tenant, and one, without tenant, for the operator's own files. Each
has full-text tables of its own, so that no score says anything about another tenant's texts: `passages_N` has the
words of each passage in the form of `analysis`, `words_N` the different words, by their trigrams. `tokens` counts the
passages of each word, since FTS5 reads every occurrence of a word to count them.
"""

from __future__ import annotations

import re
import sqlite3
from itertools import chain

VERSION = 5

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
    description TEXT NOT NULL DEFAULT '',
    owner TEXT,                 -- the subject that made it; NULL: made before version 2
    expires_days INTEGER,       -- after the last activity; NULL: never
    active_at INTEGER           -- NULL: not used since it was made
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
    owner TEXT,                 -- the subject that uploaded it; NULL: the operator's, or uploaded before version 2
    language TEXT,              -- of its words in the index
    status TEXT NOT NULL DEFAULT 'stored',      -- or 'waiting', 'searchable', 'failed'
    error_code TEXT,            -- why it failed
    error TEXT,
    expires_at INTEGER,         -- NULL: never
    tries INTEGER NOT NULL DEFAULT 0,           -- to read it that were begun and have not ended
    left_out TEXT               -- what of it could not be read; NULL: nothing
);
CREATE INDEX files_of_corpus ON files (corpus, name);
CREATE INDEX files_by_status ON files (status, corpus, place);
CREATE TABLE members (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    store_id TEXT NOT NULL REFERENCES stores (id) ON DELETE CASCADE,
    file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    attributes TEXT NOT NULL,   -- JSON
    created_at INTEGER NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0,
    UNIQUE (store_id, file_id)
);
CREATE INDEX members_of_file ON members (file_id);
CREATE TABLE batches (
    id TEXT PRIMARY KEY,
    store_id TEXT NOT NULL REFERENCES stores (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE batch_files (
    batch_id TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
    file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    PRIMARY KEY (batch_id, file_id)
);
CREATE INDEX batches_of_file ON batch_files (file_id);
CREATE TABLE chunks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,   -- rowid of the full-text table
    file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    first_line INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    headings TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX chunks_of_file ON chunks (file_id);
CREATE TABLE words (
    number INTEGER PRIMARY KEY AUTOINCREMENT,   -- rowid of the trigrams
    corpus INTEGER NOT NULL REFERENCES corpora,
    surface TEXT NOT NULL,      -- as it is written, folded and without accents
    token TEXT NOT NULL,        -- as it is in the index
    compounds INTEGER NOT NULL, -- of a language that writes several words as one
    UNIQUE (corpus, surface, token)
);
CREATE INDEX words_by_token ON words (corpus, token);
CREATE TABLE tokens (
    corpus INTEGER NOT NULL REFERENCES corpora,
    token TEXT NOT NULL,        -- as it is in the index
    passages INTEGER NOT NULL,  -- that have it
    PRIMARY KEY (corpus, token)
) WITHOUT ROWID;
CREATE INDEX tokens_without_passages ON tokens (corpus, token) WHERE passages <= 0;
CREATE TABLE skipped (
    name TEXT PRIMARY KEY,      -- an operator's file that cannot be searched
    reason TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL
);
CREATE TABLE vectors (
    chunk INTEGER PRIMARY KEY REFERENCES chunks (number) ON DELETE CASCADE,
    vector BLOB NOT NULL        -- float32, of length 1
);
CREATE TABLE gone (
    chunk INTEGER PRIMARY KEY   -- is no more; its vector is to be forgotten
);
CREATE TRIGGER chunk_gone AFTER DELETE ON chunks BEGIN INSERT OR IGNORE INTO gone VALUES (old.number); END;
CREATE TABLE facts (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
"""

_CREATE = re.compile(r"CREATE (TABLE|INDEX|TRIGGER)")
_FROM_VERSION_1 = ("ALTER TABLE stores ADD COLUMN owner TEXT", "ALTER TABLE files ADD COLUMN owner TEXT")
_FROM_VERSION_2 = (
    "ALTER TABLE stores ADD COLUMN expires_days INTEGER",
    "ALTER TABLE stores ADD COLUMN active_at INTEGER",
    "ALTER TABLE files ADD COLUMN language TEXT",
    "ALTER TABLE files ADD COLUMN status TEXT NOT NULL DEFAULT 'stored'",
    "ALTER TABLE files ADD COLUMN error_code TEXT",
    "ALTER TABLE files ADD COLUMN error TEXT",
    "ALTER TABLE files ADD COLUMN expires_at INTEGER",
    "ALTER TABLE members ADD COLUMN cancelled INTEGER NOT NULL DEFAULT 0",
    "DELETE FROM files WHERE content IS NULL",  # the operator's are read again
    "UPDATE files SET status = 'waiting' WHERE chunks > 0",
    "UPDATE files SET chunks = 0",
    "DROP TABLE chunks",
)
"""Words are kept in another form since version 3: every file is read again in the background."""
_FROM_VERSION_3 = ("ALTER TABLE stores ADD COLUMN description TEXT NOT NULL DEFAULT ''",)
_FROM_VERSION_4 = (
    "ALTER TABLE files ADD COLUMN tries INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE files ADD COLUMN left_out TEXT",
)


class WrongVersion(Exception):
    """The file was written by a newer version of this package, or is none of its files."""


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, and bring those of earlier versions up to date, whole or not at all.

    Raises `WrongVersion`, and leaves the file as it is, where it has others.
    """
    connection.execute("BEGIN")  # one look: another process may be making the tables
    version = _version(connection)
    connection.execute("COMMIT")
    if version == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    version = _version(connection)
    steps = (_FROM_VERSION_1, _FROM_VERSION_2, _FROM_VERSION_3, _FROM_VERSION_4)
    for statement in chain.from_iterable(steps[version - 1 :] if version else ()):
        connection.execute(statement)
    for number in _corpora(connection) if version in (1, 2) else ():
        connection.execute(f"DROP TABLE {passages(number)}")
        _make_passages(connection, number)
    if version < VERSION:
        for statement in _TABLES.split(";\n"):  # an early version 3 had neither `gone` nor `vectors` and `facts`
            connection.execute(_CREATE.sub(r"CREATE \1 IF NOT EXISTS", statement, count=1))
    if version == 3:
        for number in _corpora(connection):
            _count_tokens(connection, number)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _corpora(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT number FROM corpora")]


def _count_tokens(connection: sqlite3.Connection, number: int) -> None:
    """Fill `tokens` from the full-text table; version 3 kept a view of it, but for its early form."""
    view = f"vocabulary_{number:d}"
    connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS {view} USING fts5vocab ({passages(number)}, row)")
    connection.execute(f"INSERT INTO tokens (corpus, token, passages) SELECT ?, term, doc FROM {view}", (number,))
    connection.execute(f"DROP TABLE {view}")


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


def trigrams(corpus: int) -> str:
    """The name of the table of the different words of a corpus."""
    return f"words_{corpus:d}"


def corpus_number(connection: sqlite3.Connection, tenant: str | None) -> int | None:
    """The number of a tenant's corpus (None: the operator's); None where it has none yet."""
    row = connection.execute("SELECT number FROM corpora WHERE tenant IS ?", (tenant,)).fetchone()
    return None if row is None else int(row[0])


def made_corpus(connection: sqlite3.Connection, tenant: str | None) -> int:
    """The number of a tenant's corpus, which is made where there is none; within a writing transaction."""
    number = corpus_number(connection, tenant)
    if number is None:
        number = int(
            connection.execute("INSERT INTO corpora (tenant) VALUES (?) RETURNING number", (tenant,)).fetchone()[0]
        )
        _make_passages(connection, number)
    return number


def _make_passages(connection: sqlite3.Connection, number: int) -> None:
    connection.execute(
        f"CREATE VIRTUAL TABLE {passages(number)} USING fts5 (name, headings, text, "
        "tokenize = \"unicode61 remove_diacritics 0 categories 'L* N* M* Co'\")"
    )
    connection.execute(f"CREATE VIRTUAL TABLE {trigrams(number)} USING fts5 (surface, tokenize = 'trigram')")
