"""Turning on the write-ahead log of a SQLite file that several processes may open at once. Blocks."""

from __future__ import annotations

import sqlite3
from time import monotonic, sleep

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PAUSE_S = 0.02


def turn_on_write_ahead(connection: sqlite3.Connection, within_s: float) -> None:
    """Write changes ahead to a log, so that readers and a writer do not wait for one another.

    Waits for other processes that do so, too: SQLite itself does not wait for that lock, whatever timeout the
    connection has. Raises `sqlite3.Error`.
    """
    give_up_at = monotonic() + within_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # The low byte is the primary code; the others say more of it.
            if error.sqlite_errorcode & 0xFF not in _BUSY or monotonic() >= give_up_at:
                raise
        sleep(_PAUSE_S)
