"""The vector stores and files that one caller sees. There is no way from one tenant's library to another's."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolplug_file_search.database import Database
from toolplug_file_search.documents import document_text
from toolplug_file_search.ingest import Cutting, put_in, take_out, take_out_unused
from toolplug_file_search.paging import listed
from toolplug_file_search.records import Attribute, Caller, Listed, Member, Page, StoredFile, VectorStore
from toolplug_file_search.schema import corpus_number, made_corpus

NO_CORPUS = -1

_STORES = (
    "SELECT place, id, name, metadata, created_at, "
    "(SELECT count(*) FROM members WHERE store_id = stores.id), "
    "(SELECT coalesce(sum(bytes), 0) FROM members JOIN files ON files.id = file_id WHERE store_id = stores.id) "
    "FROM stores WHERE corpus = ? AND owner IS coalesce(?, owner)"
)
_FILES = (
    "SELECT place, id, name, purpose, bytes, created_at FROM files WHERE corpus = ? AND owner IS coalesce(?, owner)"
)
_MEMBERS = (
    "SELECT members.place AS place, store_id, file_id, attributes, members.created_at, files.bytes "
    "FROM members JOIN files ON files.id = file_id "
    "WHERE files.corpus = ? AND files.owner IS coalesce(?, files.owner) AND store_id = ?"
)


class NotThere(Exception):
    """No such vector store or file, or none that the caller sees: one answer for both."""

    def __init__(self, what: str, which: str) -> None:
        self.what = what
        super().__init__(f"no {what} {which!r}")


class TooMany(Exception):
    """The tenant keeps as many files or vector stores as it may."""


class _Scope(NamedTuple):
    """The records that a caller sees: of a corpus, and of one owner or (None) of all; the values of the queries."""

    corpus: int
    owner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """How much one tenant may keep."""

    files: int
    stores: int


class Library:
    """Each method is one transaction, and blocks; all raise `IndexUnavailable`, and `NotThere` for an unknown id."""

    def __init__(
        self,
        database: Database,
        caller: Caller,
        cutting: Cutting,
        quotas: Quotas,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._caller = caller
        self._cutting = cutting
        self._quotas = quotas
        self._clock = clock

    def create_store(self, name: str, metadata: Mapping[str, str], file_ids: Sequence[str] = ()) -> VectorStore:
        """Make a vector store that holds these files. Raises `TooMany`."""
        with self._database.writing() as connection:
            scope = self._made_scope(connection)
            self._check_quota(connection, "stores", scope.corpus, self._quotas.stores)
            store_id = f"vs_{secrets.token_hex(12)}"
            connection.execute(
                "INSERT INTO stores (id, corpus, name, metadata, created_at, owner) VALUES (?, ?, ?, ?, ?, ?)",
                (store_id, scope.corpus, name, json.dumps(dict(metadata)), int(self._clock()), self._caller.subject),
            )
            for file_id in dict.fromkeys(file_ids):
                self._attach(connection, scope, store_id, file_id, {})
            return _store(connection, scope, store_id)

    def stores(self, page: Page) -> Listed[VectorStore]:
        """Raises `UnknownCursor`."""
        with self._database.reading() as connection:
            return listed(connection, _STORES, self._scope(connection), page, id_column="id", read=_to_store)

    def store(self, store_id: str) -> VectorStore:
        """One vector store."""
        with self._database.reading() as connection:
            return _store(connection, self._scope(connection), store_id)

    def delete_store(self, store_id: str) -> None:
        """Delete a vector store; its files stay, and those that are in no other are no longer found."""
        with self._database.writing() as connection:
            scope = self._scope(connection)
            _store(connection, scope, store_id)
            connection.execute("DELETE FROM stores WHERE id = ?", (store_id,))
            take_out_unused(connection, scope.corpus)

    def add_file(self, name: str, content: bytes, purpose: str) -> StoredFile:
        """Keep a file; it is found once it is in a vector store. Raises `TooMany` and `UnreadableDocument`."""
        document_text(name, content)
        with self._database.writing() as connection:
            scope = self._made_scope(connection)
            self._check_quota(connection, "files", scope.corpus, self._quotas.files)
            file_id = f"file-{secrets.token_hex(12)}"
            connection.execute(
                "INSERT INTO files (id, corpus, name, purpose, bytes, content, fingerprint, created_at, owner) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    file_id,
                    scope.corpus,
                    name,
                    purpose,
                    len(content),
                    content,
                    hashlib.sha256(content).hexdigest(),
                    int(self._clock()),
                    self._caller.subject,
                ),
            )
            return _file(connection, scope, file_id)

    def files(self, page: Page) -> Listed[StoredFile]:
        """Raises `UnknownCursor`."""
        with self._database.reading() as connection:
            return listed(connection, _FILES, self._scope(connection), page, id_column="id", read=_to_file)

    def file(self, file_id: str) -> StoredFile:
        """One file."""
        with self._database.reading() as connection:
            return _file(connection, self._scope(connection), file_id)

    def content(self, file_id: str) -> bytes:
        """A file to the byte as it was uploaded."""
        with self._database.reading() as connection:
            return _content(connection, self._scope(connection), file_id)

    def delete_file(self, file_id: str) -> None:
        """Delete a file, from every vector store too."""
        with self._database.writing() as connection:
            scope = self._scope(connection)
            _file(connection, scope, file_id)
            take_out(connection, scope.corpus, file_id)
            connection.execute("DELETE FROM files WHERE id = ?", (file_id,))

    def attach(self, store_id: str, file_id: str, attributes: Mapping[str, Attribute]) -> Member:
        """Put a file into a vector store; it is searchable when this returns. Again: only the attributes change."""
        with self._database.writing() as connection:
            scope = self._scope(connection)
            _store(connection, scope, store_id)
            self._attach(connection, scope, store_id, file_id, attributes)
            return _member(connection, scope, store_id, file_id)

    def members(self, store_id: str, page: Page) -> Listed[Member]:
        """Raises `UnknownCursor`."""
        with self._database.reading() as connection:
            scope = self._scope(connection)
            _store(connection, scope, store_id)
            return listed(connection, _MEMBERS, [*scope, store_id], page, id_column="file_id", read=_to_member)

    def member(self, store_id: str, file_id: str) -> Member:
        """One file of a vector store."""
        with self._database.reading() as connection:
            scope = self._scope(connection)
            _store(connection, scope, store_id)
            return _member(connection, scope, store_id, file_id)

    def detach(self, store_id: str, file_id: str) -> None:
        """Take a file out of a vector store; the file stays."""
        with self._database.writing() as connection:
            scope = self._scope(connection)
            _store(connection, scope, store_id)
            _member(connection, scope, store_id, file_id)
            connection.execute("DELETE FROM members WHERE store_id = ? AND file_id = ?", (store_id, file_id))
            take_out_unused(connection, scope.corpus)

    def _attach(
        self,
        connection: sqlite3.Connection,
        scope: _Scope,
        store_id: str,
        file_id: str,
        attributes: Mapping[str, Attribute],
    ) -> None:
        file = _file(connection, scope, file_id)
        connection.execute(
            "INSERT INTO members (store_id, file_id, attributes, created_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (store_id, file_id) DO UPDATE SET attributes = excluded.attributes",
            (store_id, file_id, json.dumps(dict(attributes)), int(self._clock())),
        )
        if not connection.execute("SELECT chunks FROM files WHERE id = ?", (file_id,)).fetchone()[0]:
            text = document_text(file.name, _content(connection, scope, file_id))
            put_in(connection, scope.corpus, file_id, file.name, text, self._cutting)

    def _scope(self, connection: sqlite3.Connection) -> _Scope:
        number = corpus_number(connection, self._caller.tenant)
        return _Scope(NO_CORPUS if number is None else number, self._caller.only)

    def _made_scope(self, connection: sqlite3.Connection) -> _Scope:
        return _Scope(made_corpus(connection, self._caller.tenant), self._caller.only)

    def _check_quota(self, connection: sqlite3.Connection, table: str, corpus: int, most: int) -> None:
        count: int = connection.execute(f"SELECT count(*) FROM {table} WHERE corpus = ?", (corpus,)).fetchone()[0]
        if count >= most:
            what = "vector stores" if table == "stores" else table
            raise TooMany(f"{most} {what} are kept already; delete one first")


def _store(connection: sqlite3.Connection, scope: _Scope, store_id: str) -> VectorStore:
    row = connection.execute(f"{_STORES} AND id = ?", (*scope, store_id)).fetchone()
    if row is None:
        raise NotThere("vector store", store_id)
    return _to_store(row)


def _file(connection: sqlite3.Connection, scope: _Scope, file_id: str) -> StoredFile:
    row = connection.execute(f"{_FILES} AND id = ?", (*scope, file_id)).fetchone()
    if row is None:
        raise NotThere("file", file_id)
    return _to_file(row)


def _content(connection: sqlite3.Connection, scope: _Scope, file_id: str) -> bytes:
    _file(connection, scope, file_id)
    return bytes(connection.execute("SELECT content FROM files WHERE id = ?", (file_id,)).fetchone()[0])


def _member(connection: sqlite3.Connection, scope: _Scope, store_id: str, file_id: str) -> Member:
    row = connection.execute(f"{_MEMBERS} AND file_id = ?", (*scope, store_id, file_id)).fetchone()
    if row is None:
        raise NotThere("file", file_id)
    return _to_member(row)


def _to_store(row: Sequence[Any]) -> VectorStore:
    _, store_id, name, metadata, created_at, files, size = row
    return VectorStore(
        id=store_id, name=name, metadata=json.loads(metadata), created_at=created_at, files=files, bytes=size
    )


def _to_file(row: Sequence[Any]) -> StoredFile:
    _, file_id, name, purpose, size, created_at = row
    return StoredFile(id=file_id, name=name, purpose=purpose, bytes=size, created_at=created_at)


def _to_member(row: Sequence[Any]) -> Member:
    _, store_id, file_id, attributes, created_at, size = row
    return Member(
        store_id=store_id, file_id=file_id, attributes=json.loads(attributes), created_at=created_at, bytes=size
    )
