"""A batch of changes as one SQLite transaction, in a fixed number of statements whatever its size."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from toolplug.stores.change import Change
from toolplug.stores.settle import Counters, Head, Settlement, settle

_PURGED_AT_ONCE = 64

# The records that the batch names, and a bounded number of expired ones beside them.
_HEADS = """
WITH wanted (key) AS (
    SELECT value FROM json_each(:keys)
    UNION
    SELECT key FROM (SELECT key FROM records WHERE expires_at <= :now ORDER BY expires_at LIMIT :purged)
)
SELECT key, revision, expires_at, origin, position, appended FROM wanted CROSS JOIN records USING (key)
"""
_WRITE = """
INSERT INTO records (key, revision, expires_at, origin, position, appended, value) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
    revision = excluded.revision, expires_at = excluded.expires_at, origin = excluded.origin,
    position = excluded.position, appended = excluded.appended, value = excluded.value
"""
_WRITE_HEAD = "UPDATE records SET expires_at = ?, position = ?, appended = ? WHERE key = ?"
_TRIM = """
DELETE FROM events
WHERE key = ?1 AND id <= (SELECT id FROM events WHERE key = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)
"""


def write_batch(
    connection: sqlite3.Connection, changes: Sequence[Change], *, now: float, kept_events: int
) -> Settlement:
    """Settle the changes and write them, all that do not conflict or none; raises `sqlite3.Error`."""
    if connection.in_transaction:
        # An earlier rollback failed with its batch.
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    try:
        settlement = _settled(connection, changes, now)
        _write(connection, settlement, kept_events)
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return settlement


def _settled(connection: sqlite3.Connection, changes: Sequence[Change], now: float) -> Settlement:
    removed, position = connection.execute("SELECT removed, position FROM counters").fetchone()
    heads = connection.execute(
        _HEADS,
        {"keys": json.dumps([change.key for change in changes]), "now": now, "purged": _PURGED_AT_ONCE},
    )
    stored = {
        key: Head(revision=revision, expires_at=expires_at, origin=origin, position=last, appended=appended)
        for key, revision, expires_at, origin, last, appended in heads
    }
    return settle(changes, stored, Counters(removed, position), now=now)


def _write(connection: sqlite3.Connection, settlement: Settlement, kept_events: int) -> None:
    if settlement.idle:
        return
    heads, values, appended = settlement.heads, settlement.values, settlement.appended
    removed = [(key,) for key in settlement.removed]
    connection.executemany("DELETE FROM events WHERE key = ?", removed)
    connection.executemany("DELETE FROM records WHERE key = ?", removed)
    connection.executemany(
        _WRITE,
        [
            (key, head.revision, head.expires_at, head.origin, head.position, head.appended, values[key])
            for key, head in heads.items()
            if key in values
        ],
    )
    connection.executemany(
        _WRITE_HEAD,
        [(head.expires_at, head.position, head.appended, key) for key, head in heads.items() if key not in values],
    )
    connection.executemany(
        "INSERT INTO events (id, key, data) VALUES (?, ?, ?)",
        [(event.id, key, event.data) for key, events in appended.items() for event in events],
    )
    full = [(key, kept_events) for key in appended if heads[key].appended > kept_events]
    connection.executemany(_TRIM, full)
    connection.execute("UPDATE counters SET removed = ?, position = ?", settlement.counters)
