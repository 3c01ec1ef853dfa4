"""Vectors in PostgreSQL with the extension pgvector; compared exactly, by the database.

The words and texts of passages stay in the index of this host, so each index has its own rows in the table.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import LiteralString

import psycopg

from toolplug_file_search.storage.database import Database
from toolplug_file_search.vectors.embeddings import Vector
from toolplug_file_search.vectors.protocol import Near, VectorsUnavailable

CONNECT_S = 5
STATEMENT_MS = 15_000
_TABLE: LiteralString = """
CREATE TABLE IF NOT EXISTS toolplug_file_search_vectors (
    index_id text NOT NULL,
    chunk bigint NOT NULL,
    corpus bigint NOT NULL,
    vector vector NOT NULL,
    PRIMARY KEY (index_id, chunk)
)
"""
_NEAREST: LiteralString = (
    "SELECT chunk, 1 - (vector <=> %(vector)s::vector) FROM toolplug_file_search_vectors "
    "WHERE index_id = %(index)s AND corpus = %(corpus)s AND (%(among)s::bigint[] IS NULL OR chunk = ANY(%(among)s)) "
    "ORDER BY vector <=> %(vector)s::vector, chunk LIMIT %(limit)s"
)


class PgVectors:
    """Connects when it is first asked, and again after a failure; without a URL libpq reads `PGHOST`, `PGUSER`, …"""

    def __init__(self, database: Database, url: str) -> None:
        self._database = database
        self._url = url
        self._lock = Lock()
        self._connection: psycopg.Connection | None = None
        self._index_id = ""

    def check(self) -> None:
        with self._transaction() as connection:
            connection.execute("SELECT 1")

    def clear(self) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM toolplug_file_search_vectors WHERE index_id = %s", (self._index_id,))

    def add(self, corpus: int, vectors: Sequence[tuple[int, Vector]]) -> None:
        with self._transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO toolplug_file_search_vectors (index_id, chunk, corpus, vector) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (index_id, chunk) DO UPDATE SET vector = excluded.vector",
                [(self._index_id, chunk, corpus, _write_vector(vector)) for chunk, vector in vectors],
            )

    def forget(self, chunks: Sequence[int]) -> None:
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM toolplug_file_search_vectors WHERE index_id = %s AND chunk = ANY(%s)",
                (self._index_id, list(chunks)),
            )

    def nearest(self, corpus: int, vector: Vector, limit: int, among: Sequence[int] | None) -> list[Near]:
        with self._transaction() as connection:
            rows = connection.execute(
                _NEAREST,
                {
                    "vector": _write_vector(vector),
                    "index": self._index_id,
                    "corpus": corpus,
                    "among": None if among is None else list(among),
                    "limit": limit,
                },
            )
            return [Near(chunk, similarity) for chunk, similarity in rows.fetchall()]

    def close(self) -> None:
        with self._lock:
            self._drop()

    @contextmanager
    def _transaction(self) -> Generator[psycopg.Connection]:
        """One transaction, on the one connection."""
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._open()
                with self._connection.transaction():
                    yield self._connection
            except (psycopg.Error, OSError) as error:
                self._drop()
                reason = " ".join(str(error).split()) or type(error).__name__
                raise VectorsUnavailable(f"the database does not answer: {reason}") from error

    def _open(self) -> psycopg.Connection:
        connection = psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=CONNECT_S,
            options=f"-c statement_timeout={STATEMENT_MS}",
            application_name="toolplug-file-search",
        )
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(_TABLE)
        except BaseException:
            connection.close()
            raise
        if not self._index_id:
            with self._database.writing() as index:
                index.execute("INSERT OR IGNORE INTO facts (name, value) VALUES ('index', ?)", (secrets.token_hex(8),))
                self._index_id = str(index.execute("SELECT value FROM facts WHERE name = 'index'").fetchone()[0])
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


def _write_vector(vector: Vector) -> str:
    return f"[{','.join(map(repr, vector))}]"
