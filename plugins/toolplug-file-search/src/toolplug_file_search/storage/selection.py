"""What a caller sees of the tables, and rows as values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from toolplug_file_search.storage.records import Batch, Caller, Counts, Member, StoredFile, VectorStore
from toolplug_file_search.storage.schema import corpus_number, made_corpus

NO_CORPUS = -1

_STATUS = (
    "CASE WHEN cancelled THEN 'cancelled' WHEN status = 'searchable' THEN 'completed' "
    "WHEN status = 'failed' THEN 'failed' ELSE 'in_progress' END"
)
EXPIRED = "expires_days IS NOT NULL AND coalesce(active_at, stores.created_at) + expires_days * 86400 <= unixepoch()"
"""Holds for a vector store that has expired."""
LIVE = "(files.expires_at IS NULL OR files.expires_at > unixepoch())"
_COUNTED = ", ".join(
    f"count(*) FILTER (WHERE {_STATUS} = '{state}')" for state in ("in_progress", "completed", "failed", "cancelled")
)
_IN_STORE = f"FROM members JOIN files ON files.id = file_id WHERE store_id = stores.id AND {LIVE}"

STORES = (
    "SELECT place, id, name, description, metadata, created_at, active_at, expires_days, "
    f"(SELECT json_array({_COUNTED}, coalesce(sum(bytes), 0)) {_IN_STORE}), "
    f"{EXPIRED} "
    "FROM stores WHERE corpus = ? AND owner IS coalesce(?, owner)"
)
FILES = (
    "SELECT place, id, name, purpose, bytes, created_at, expires_at FROM files "
    f"WHERE corpus = ? AND owner IS coalesce(?, owner) AND {LIVE}"
)
MEMBERS = (
    "SELECT members.place AS place, store_id, file_id, attributes, members.created_at, files.bytes, "
    f"{_STATUS} AS state, error_code, error, left_out FROM members JOIN files ON files.id = file_id "
    f"WHERE files.corpus = ? AND files.owner IS coalesce(?, files.owner) AND store_id = ? AND {LIVE}"
)
_BATCH = (
    "SELECT id, store_id, created_at, cancelled, (SELECT json_array("
    + _COUNTED
    + ") FROM batch_files JOIN members USING (file_id) JOIN files ON files.id = file_id "
    "WHERE batch_id = batches.id AND members.store_id = batches.store_id) FROM batches WHERE store_id = ? AND id = ?"
)


class NotThere(Exception):
    """No such vector store or file, or none that the caller sees: one answer for both."""

    def __init__(self, what: str, which: str) -> None:
        self.what = what
        super().__init__(f"no {what} {which!r}")


class Scope(NamedTuple):
    """The records that a caller sees: of a corpus, and of one owner or (None) of all; the values of the queries."""

    corpus: int
    owner: str | None


def scope_of(connection: sqlite3.Connection, caller: Caller) -> Scope:
    """The caller's scope; it has no corpus before anything is kept."""
    number = corpus_number(connection, caller.tenant)
    return Scope(NO_CORPUS if number is None else number, caller.only)


def made_scope(connection: sqlite3.Connection, caller: Caller) -> Scope:
    """The caller's scope, within a writing transaction."""
    return Scope(made_corpus(connection, caller.tenant), caller.only)


def store(connection: sqlite3.Connection, scope: Scope, store_id: str) -> VectorStore:
    """One vector store. Raises `NotThere`."""
    row = connection.execute(f"{STORES} AND id = ?", (*scope, store_id)).fetchone()
    if row is None:
        raise NotThere("vector store", store_id)
    return to_store(row)


def file(connection: sqlite3.Connection, scope: Scope, file_id: str) -> StoredFile:
    """One file. Raises `NotThere`."""
    row = connection.execute(f"{FILES} AND id = ?", (*scope, file_id)).fetchone()
    if row is None:
        raise NotThere("file", file_id)
    return to_file(row)


def member(connection: sqlite3.Connection, scope: Scope, store_id: str, file_id: str) -> Member:
    """One file of a vector store. Raises `NotThere`."""
    row = connection.execute(f"{MEMBERS} AND file_id = ?", (*scope, store_id, file_id)).fetchone()
    if row is None:
        raise NotThere("file", file_id)
    return to_member(row)


def batch(connection: sqlite3.Connection, store_id: str, batch_id: str) -> Batch:
    """One batch of a vector store that the caller sees. Raises `NotThere`."""
    row = connection.execute(_BATCH, (store_id, batch_id)).fetchone()
    if row is None:
        raise NotThere("file batch", batch_id)
    found, held_by, created_at, cancelled, counts = row
    return Batch(
        id=found, store_id=held_by, created_at=created_at, cancelled=bool(cancelled), counts=_counts(json.loads(counts))
    )


def to_store(row: Sequence[Any]) -> VectorStore:
    """A row of `STORES`."""
    _, store_id, name, description, metadata, created_at, active_at, days, counted, expired = row
    *counts, size = json.loads(counted)
    active = created_at if active_at is None else active_at
    return VectorStore(
        id=store_id,
        name=name,
        description=description,
        metadata=json.loads(metadata),
        created_at=created_at,
        active_at=active,
        expires_days=days,
        expires_at=None if days is None else active + days * 86400,
        expired=bool(expired),
        counts=_counts(counts),
        bytes=size,
    )


def to_file(row: Sequence[Any]) -> StoredFile:
    """A row of `FILES`."""
    _, file_id, name, purpose, size, created_at, expires_at = row
    return StoredFile(id=file_id, name=name, purpose=purpose, bytes=size, created_at=created_at, expires_at=expires_at)


def to_member(row: Sequence[Any]) -> Member:
    """A row of `MEMBERS`."""
    _, store_id, file_id, attributes, created_at, size, status, code, error, left_out = row
    return Member(
        store_id=store_id,
        file_id=file_id,
        attributes=json.loads(attributes),
        created_at=created_at,
        bytes=size,
        status=status,
        error_code=code or "",
        error=error or "",
        left_out=left_out or "",
    )


def _counts(numbers: Sequence[int]) -> Counts:
    in_progress, completed, failed, cancelled = numbers
    return Counts(in_progress=in_progress, completed=completed, failed=failed, cancelled=cancelled)
