"""The journal's SQLite file: its tables, how entries are written and read, and what is dropped. Everything blocks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from toolplug.sqlite import turn_on_write_ahead
from toolplug_journal import chain
from toolplug_journal.entry import DECISIONS, Entry, StoredEntry

FILE = "journal.db"
"""The name of the file, in the state directory of the plugin."""

VERSION = 3
BUSY_S = 5.0

_TABLES = """
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,     -- microseconds since the epoch, or one more than the last: never less
    uid TEXT NOT NULL UNIQUE,
    began_at REAL NOT NULL,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    tool TEXT NOT NULL,
    call_id TEXT NOT NULL,
    arguments TEXT,             -- JSON; NULL: not kept
    status TEXT,                -- NULL: runs, or nobody was there when it ended
    duration_s REAL,
    more TEXT                   -- JSON: who allowed it, and what a person has decided
);
CREATE INDEX calls_of_tenant ON calls (tenant, id);
CREATE INDEX calls_by_age ON calls (began_at);
CREATE TABLE tenants (tenant TEXT PRIMARY KEY, kept INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER one_more AFTER INSERT ON calls BEGIN
    INSERT INTO tenants VALUES (new.tenant, 1) ON CONFLICT (tenant) DO UPDATE SET kept = kept + 1;
END;
CREATE TRIGGER one_less AFTER DELETE ON calls BEGIN
    UPDATE tenants SET kept = kept - 1 WHERE tenant = old.tenant;
END;
"""
_MORE = "ALTER TABLE calls ADD COLUMN more TEXT;"
_WRITE = """
INSERT INTO calls (id, uid, began_at, tenant, subject, tool, call_id, arguments, status, duration_s, more)
VALUES (max(CAST(:began_at * 1000000 AS INTEGER), (SELECT coalesce(max(id), 0) + 1 FROM calls)),
        :uid, :began_at, :tenant, :subject, :tool, :call_id, :arguments, :status, :duration_s, :more)
ON CONFLICT (uid) DO UPDATE SET status = excluded.status, duration_s = excluded.duration_s, more = excluded.more
"""
_FIELDS = "id, began_at, subject, tool, call_id, arguments, status, duration_s, more"
_READ = f"SELECT {_FIELDS} FROM calls WHERE tenant = ? "
_READ_ALL = f"SELECT tenant, {_FIELDS} FROM calls WHERE id > ? AND began_at >= ?"
_IS_CALL = f"(status IS NULL OR status NOT IN ({', '.join(map(repr, DECISIONS))}))"
_DROP_OLDEST = "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE tenant = ? ORDER BY id LIMIT ?)"


class JournalRefused(Exception):
    """The file is no journal that this version can read; it is left as it is."""


class Retention(NamedTuple):
    """How much is kept: entries that began in the last `keep_s` seconds, and of each tenant the newest `max_rows`."""

    keep_s: float
    max_rows: int


class Database:
    """A journal at a path; every method opens a connection of its own or takes one, and raises `sqlite3.Error`."""

    def __init__(self, path: Path, retention: Retention) -> None:
        self._path = path
        self._retention = retention

    def prepare(self, now: float) -> None:
        """Make the tables in a new file, and drop what is too old. Raises `JournalRefused` for another kind of file."""
        try:
            with closing(self.connect()) as connection:
                version = _version(connection)
                if version not in range(VERSION + 1):
                    raise JournalRefused(f"{self._path} has version {version}, this package knows version {VERSION}")
                turn_on_write_ahead(connection, BUSY_S)
                if version == 0:
                    _change(connection, f"{_TABLES} {chain.TABLES}")
                elif version < VERSION:
                    # Its calls stay. The chain of one of the first release begins now.
                    _change(connection, f"{chain.TABLES} {_MORE}")
                self.write(connection, (), now)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise JournalRefused(f"{self._path} is not a journal that can be used: {error}; move it away") from error

    def connect(self) -> sqlite3.Connection:
        """A connection; its owner closes it. What is committed survives the death of the process."""
        connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")  # reads the file, which may be no database
        except BaseException:
            connection.close()
            raise
        return connection

    def write(self, connection: sqlite3.Connection, entries: Sequence[Entry], now: float) -> None:
        """Keep all of these, or none, and drop what is over the retention."""
        with _transaction(connection):
            connection.executemany(_WRITE, map(_row, entries))
            chain.append(connection, entries, now)
            chain.drop_older(connection, now - self._retention.keep_s)
            connection.execute("DELETE FROM calls WHERE began_at < ?", (now - self._retention.keep_s,))
            most = self._retention.max_rows
            over = connection.execute("SELECT tenant, kept - ? FROM tenants WHERE kept > ?", (most, most)).fetchall()
            connection.executemany(_DROP_OLDEST, over)

    def after(self, tenant: str, place: int, limit: int, now: float) -> list[StoredEntry]:
        """The tenant's entries after this place, the oldest first."""
        return self._read("AND id > ? AND began_at >= ? ORDER BY id LIMIT ?", tenant, place, self._since(now), limit)

    def of_all(self, place: int, limit: int, now: float, *, decisions: bool = True) -> list[tuple[str, StoredEntry]]:
        """The entries of every tenant after this place, each with its tenant, the oldest first."""
        left_out = "" if decisions else f"AND {_IS_CALL}"
        with closing(self.connect()) as connection:
            rows = connection.execute(f"{_READ_ALL} {left_out} ORDER BY id LIMIT ?", (place, self._since(now), limit))
            return [(tenant, StoredEntry(*row)) for tenant, *row in rows]

    def newest(
        self, tenant: str, tool: str | None, limit: int, now: float, *, decisions: bool = True
    ) -> list[StoredEntry]:
        """The tenant's newest calls that have ended, the newest first; of one tool where it is given.

        With `decisions`, what people have decided too.
        """
        left_out = "" if decisions else f"AND {_IS_CALL}"
        where = f"AND status IS NOT NULL {left_out} AND began_at >= ? AND tool = coalesce(?, tool)"
        return self._read(f"{where} ORDER BY id DESC LIMIT ?", tenant, self._since(now), tool, limit)

    def count(self) -> int:
        """How many entries there are."""
        with closing(self.connect()) as connection:
            return int(connection.execute("SELECT coalesce(sum(kept), 0) FROM tenants").fetchone()[0])

    def _read(self, where: str, *values: object) -> list[StoredEntry]:
        with closing(self.connect()) as connection:
            return [StoredEntry(*row) for row in connection.execute(_READ + where, values)]

    def _since(self, now: float) -> float:
        return now - self._retention.keep_s


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _change(connection: sqlite3.Connection, script: str) -> None:
    """Bring the tables to this version, unless another process that has begun with this one does."""
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {VERSION}; COMMIT;")
    except sqlite3.OperationalError:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if _version(connection) != VERSION:
            raise


def _row(entry: Entry) -> dict[str, object]:
    return {**entry._asdict(), "more": None if entry.more is None else json.dumps(dict(entry.more))}


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
