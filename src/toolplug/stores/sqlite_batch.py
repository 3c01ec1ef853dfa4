"""A batch of changes as one SQLite transaction, in a fixed number of statements whatever its size."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from toolplug.stores.change import Change
from toolplug.stores.settle import Counters, Head, Settlement, settle
from toolplug.stores.sqlite_connection import Connection

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


async def write_batch(connection: Connection, changes: Sequence[Change], *, now: float, kept_events: int) -> Settlement:
    """Settle the changes and write them, all that do not conflict or none; raises `sqlite3.Error`."""
    if connection.in_transaction:
        # An earlier rollback failed with its batch.
        await connection.rows("ROLLBACK")
    await connection.rows("BEGIN IMMEDIATE")
    try:
        settlement = await _settled(connection, changes, now)
        await _write(connection, settlement, kept_events)
        await connection.rows("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            await connection.rows("ROLLBACK")
        raise
    return settlement


async def _settled(connection: Connection, changes: Sequence[Change], now: float) -> Settlement:
    ((removed, position),) = await connection.rows("SELECT removed, position FROM counters")
    heads = await connection.rows(
        _HEADS,
        {"keys": json.dumps([change.key for change in changes]), "now": now, "purged": _PURGED_AT_ONCE},
    )
    stored = {
        key: Head(revision=revision, expires_at=expires_at, origin=origin, position=last, appended=appended)
        for key, revision, expires_at, origin, last, appended in heads
    }
    return settle(changes, stored, Counters(removed, position), now=now)


async def _write(connection: Connection, settlement: Settlement, kept_events: int) -> None:
    if settlement.idle:
        return
    removed = [(key,) for key in settlement.removed]
    await connection.for_each("DELETE FROM events WHERE key = ?", removed)
    await connection.for_each("DELETE FROM records WHERE key = ?", removed)
    await connection.for_each(
        _WRITE,
        [
            (key, head.revision, head.expires_at, head.origin, head.position, head.appended, settlement.values[key])
            for key, head in settlement.heads.items()
            if key in settlement.values
        ],
    )
    await connection.for_each(
        _WRITE_HEAD,
        [
            (head.expires_at, head.position, head.appended, key)
            for key, head in settlement.heads.items()
            if key not in settlement.values
        ],
    )
    await connection.for_each(
        "INSERT INTO events (id, key, data) VALUES (?, ?, ?)",
        [(event.id, key, event.data) for key, events in settlement.appended.items() for event in events],
    )
    full = [key for key in settlement.appended if settlement.heads[key].appended > kept_events]
    await connection.for_each(_TRIM, [(key, kept_events) for key in full])
    await connection.rows("UPDATE counters SET removed = ?, position = ?", settlement.counters)
