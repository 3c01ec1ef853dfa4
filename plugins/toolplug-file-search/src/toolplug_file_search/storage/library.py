"""The vector stores and files that one caller sees. There is no way from one tenant's library to another's."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolplug_file_search.documents.conversion import check
from toolplug_file_search.storage import selection
from toolplug_file_search.storage.database import Database
from toolplug_file_search.storage.indexing import take_out, take_out_unused
from toolplug_file_search.storage.paging import list_page
from toolplug_file_search.storage.records import (
    Attribute,
    Batch,
    Caller,
    Listed,
    Member,
    Page,
    Status,
    StoredFile,
    VectorStore,
)
from toolplug_file_search.storage.selection import Scope, made_scope, scope_of

PASSAGES = 32
"""Passages of a file that are read at once."""


class TooMany(Exception):
    """The tenant keeps as many files or vector stores as it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """How much one tenant may keep."""

    files: int
    stores: int
    bytes: int


class Attached(NamedTuple):
    """A file that is put into a vector store, and what is known of it there."""

    file_id: str
    attributes: Mapping[str, Attribute]


class Library:
    """Each method is one transaction, and blocks; all raise `IndexUnavailable`, and `NotThere` for an unknown id.

    `ingest` is called after files were put into vector stores: they are read in the background.
    """

    def __init__(
        self,
        database: Database,
        caller: Caller,
        quotas: Quotas,
        ingest: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._caller = caller
        self._quotas = quotas
        self._ingest = ingest
        self._clock = clock

    def create_store(
        self,
        name: str,
        metadata: Mapping[str, str],
        files: Sequence[Attached] = (),
        expires_days: int | None = None,
        description: str = "",
    ) -> VectorStore:
        """Make a vector store that holds these files. Raises `TooMany`."""
        with self._database.writing() as connection:
            scope = made_scope(connection, self._caller)
            self._check_count(connection, "stores", scope.corpus, self._quotas.stores)
            store_id = f"vs_{secrets.token_hex(12)}"
            connection.execute(
                "INSERT INTO stores (id, corpus, name, metadata, created_at, owner, expires_days, description) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    store_id,
                    scope.corpus,
                    name,
                    json.dumps(dict(metadata)),
                    int(self._clock()),
                    self._caller.subject,
                    expires_days,
                    description,
                ),
            )
            self._attach(connection, scope, store_id, files)
            made = selection.store(connection, scope, store_id)
        self._ingest()
        return made

    def update_store(self, store_id: str, changes: Mapping[str, object]) -> VectorStore:
        """Change `name`, `description`, `metadata` or `expires_days`, as far as they are given."""
        with self._database.writing() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            for column, value in changes.items():
                connection.execute(f"UPDATE stores SET {column} = ? WHERE id = ?", (value, store_id))
            return selection.store(connection, scope, store_id)

    def stores(self, page: Page) -> Listed[VectorStore]:
        """Raises `UnknownCursor`."""
        with self._database.reading() as connection:
            scope = scope_of(connection, self._caller)
            return list_page(connection, selection.STORES, scope, page, id_column="id", read=selection.to_store)

    def store(self, store_id: str) -> VectorStore:
        """One vector store."""
        with self._database.reading() as connection:
            return selection.store(connection, scope_of(connection, self._caller), store_id)

    def delete_store(self, store_id: str) -> None:
        """Delete a vector store; its files stay, and those that are in no other are no longer found."""
        with self._database.writing() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            connection.execute("DELETE FROM stores WHERE id = ?", (store_id,))
            take_out_unused(connection, scope.corpus)

    def add_file(self, name: str, content: bytes, purpose: str, expires_s: int | None = None) -> StoredFile:
        """Keep a file; it is found once it is in a vector store. Raises `TooMany` and `UnreadableDocument`."""
        check(name, content)
        with self._database.writing() as connection:
            scope = made_scope(connection, self._caller)
            self._check_count(connection, "files", scope.corpus, self._quotas.files)
            self._check_bytes(connection, scope.corpus, len(content))
            file_id, now = f"file-{secrets.token_hex(12)}", int(self._clock())
            connection.execute(
                "INSERT INTO files "
                "(id, corpus, name, purpose, bytes, content, fingerprint, created_at, owner, expires_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    file_id,
                    scope.corpus,
                    name,
                    purpose,
                    len(content),
                    content,
                    hashlib.sha256(content).hexdigest(),
                    now,
                    self._caller.subject,
                    None if expires_s is None else now + expires_s,
                ),
            )
            return selection.file(connection, scope, file_id)

    def files(self, page: Page, purpose: str | None = None) -> Listed[StoredFile]:
        """Raises `UnknownCursor`."""
        with self._database.reading() as connection:
            scope: Sequence[object] = scope_of(connection, self._caller)
            select = selection.FILES
            if purpose is not None:
                select, scope = f"{select} AND purpose = ?", [*scope, purpose]
            return list_page(connection, select, scope, page, id_column="id", read=selection.to_file)

    def file(self, file_id: str) -> StoredFile:
        """One file."""
        with self._database.reading() as connection:
            return selection.file(connection, scope_of(connection, self._caller), file_id)

    def content(self, file_id: str) -> bytes:
        """A file to the byte as it was uploaded."""
        with self._database.reading() as connection:
            selection.file(connection, scope_of(connection, self._caller), file_id)
            return bytes(connection.execute("SELECT content FROM files WHERE id = ?", (file_id,)).fetchone()[0])

    def delete_file(self, file_id: str) -> None:
        """Delete a file, from every vector store too."""
        with self._database.writing() as connection:
            scope = scope_of(connection, self._caller)
            selection.file(connection, scope, file_id)
            take_out(connection, scope.corpus, file_id)
            connection.execute("DELETE FROM files WHERE id = ?", (file_id,))

    def attach(self, store_id: str, attached: Attached) -> Member:
        """Put a file into a vector store; it is read in the background. Again: only the attributes change."""
        with self._database.writing() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            self._attach(connection, scope, store_id, [attached])
            made = selection.member(connection, scope, store_id, attached.file_id)
        self._ingest()
        return made

    def update_member(self, store_id: str, attached: Attached) -> Member:
        """Change the attributes of a file of a vector store."""
        with self._database.writing() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            selection.member(connection, scope, store_id, attached.file_id)
            connection.execute(
                "UPDATE members SET attributes = ? WHERE store_id = ? AND file_id = ?",
                (json.dumps(dict(attached.attributes)), store_id, attached.file_id),
            )
            return selection.member(connection, scope, store_id, attached.file_id)

    def members(
        self, store_id: str, page: Page, status: Status | None = None, batch_id: str | None = None
    ) -> Listed[Member]:
        """The files of a vector store, or of one batch of it. Raises `UnknownCursor`."""
        with self._database.reading() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            select, values = selection.MEMBERS, [*scope, store_id]
            if batch_id is not None:
                selection.batch(connection, store_id, batch_id)
                select += " AND file_id IN (SELECT file_id FROM batch_files WHERE batch_id = ?)"
                values.append(batch_id)
            if status is not None:
                select = f"SELECT * FROM ({select}) WHERE state = ?"
                values.append(status)
            return list_page(connection, select, values, page, id_column="file_id", read=selection.to_member)

    def attributes(self, store_id: str, files: Iterable[str]) -> dict[str, Mapping[str, Attribute]]:
        """The attributes of these files of a vector store, by id, as far as they are there."""
        with self._database.reading() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            rows = connection.execute(
                "SELECT file_id, attributes FROM members JOIN json_each(?) ON value = file_id WHERE store_id = ?",
                (json.dumps(list(files)), store_id),
            )
            return {file: json.loads(attributes) for file, attributes in rows}

    def member(self, store_id: str, file_id: str) -> Member:
        """One file of a vector store."""
        with self._database.reading() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            return selection.member(connection, scope, store_id, file_id)

    def text(self, store_id: str, file_id: str, after: int = 0) -> list[tuple[int, str]]:
        """The next passages of a file of a vector store, as they are searched, each with its number."""
        with self._database.reading() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            selection.member(connection, scope, store_id, file_id)
            return connection.execute(
                "SELECT number, text FROM chunks WHERE file_id = ? AND number > ? ORDER BY number LIMIT ?",
                (file_id, after, PASSAGES),
            ).fetchall()

    def detach(self, store_id: str, file_id: str) -> None:
        """Take a file out of a vector store; the file stays."""
        with self._database.writing() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            selection.member(connection, scope, store_id, file_id)
            connection.execute("DELETE FROM members WHERE store_id = ? AND file_id = ?", (store_id, file_id))
            take_out_unused(connection, scope.corpus)

    def create_batch(self, store_id: str, files: Sequence[Attached]) -> Batch:
        """Put files into a vector store by one request."""
        with self._database.writing() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            batch_id = f"vsfb_{secrets.token_hex(12)}"
            connection.execute(
                "INSERT INTO batches (id, store_id, created_at) VALUES (?, ?, ?)",
                (batch_id, store_id, int(self._clock())),
            )
            self._attach(connection, scope, store_id, files)
            connection.executemany(
                "INSERT OR IGNORE INTO batch_files (batch_id, file_id) VALUES (?, ?)",
                [(batch_id, each.file_id) for each in files],
            )
            made = selection.batch(connection, store_id, batch_id)
        self._ingest()
        return made

    def batch(self, store_id: str, batch_id: str) -> Batch:
        """One batch of a vector store."""
        with self._database.reading() as connection:
            selection.store(connection, scope_of(connection, self._caller), store_id)
            return selection.batch(connection, store_id, batch_id)

    def cancel_batch(self, store_id: str, batch_id: str) -> Batch:
        """Leave out those files of a batch that were not read yet."""
        with self._database.writing() as connection:
            scope = scope_of(connection, self._caller)
            selection.store(connection, scope, store_id)
            selection.batch(connection, store_id, batch_id)
            connection.execute("UPDATE batches SET cancelled = 1 WHERE id = ?", (batch_id,))
            connection.execute(
                "UPDATE members SET cancelled = 1 WHERE store_id = ? AND file_id IN (SELECT file_id FROM batch_files "
                "JOIN files ON files.id = file_id WHERE batch_id = ? AND status = 'waiting')",
                (store_id, batch_id),
            )
            take_out_unused(connection, scope.corpus)
            return selection.batch(connection, store_id, batch_id)

    def _attach(
        self, connection: sqlite3.Connection, scope: Scope, store_id: str, attached: Sequence[Attached]
    ) -> None:
        for file_id, attributes in attached:
            selection.file(connection, scope, file_id)
            connection.execute(
                "INSERT INTO members (store_id, file_id, attributes, created_at) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (store_id, file_id) DO UPDATE SET attributes = excluded.attributes, cancelled = 0",
                (store_id, file_id, json.dumps(dict(attributes)), int(self._clock())),
            )
            connection.execute("UPDATE files SET status = 'waiting' WHERE id = ? AND status = 'stored'", (file_id,))
        connection.execute("UPDATE stores SET active_at = ? WHERE id = ?", (int(self._clock()), store_id))

    def _check_count(self, connection: sqlite3.Connection, table: str, corpus: int, most: int) -> None:
        count: int = connection.execute(f"SELECT count(*) FROM {table} WHERE corpus = ?", (corpus,)).fetchone()[0]
        if count >= most:
            what = "vector stores" if table == "stores" else table
            raise TooMany(f"{most} {what} are kept already; delete one first")

    def _check_bytes(self, connection: sqlite3.Connection, corpus: int, size: int) -> None:
        kept: int = connection.execute(
            "SELECT coalesce(sum(bytes), 0) FROM files WHERE corpus = ?", (corpus,)
        ).fetchone()[0]
        if kept + size > self._quotas.bytes:
            raise TooMany(
                f"files of {kept} bytes are kept already, {self._quotas.bytes} are allowed; delete some first"
            )
