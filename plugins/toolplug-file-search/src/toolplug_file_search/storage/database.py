"""The SQLite file of the index: one writer, any number of readers, each call a transaction.

Everything here blocks and is called in threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic

from toolplug.sqlite import turn_on_write_ahead
from toolplug_file_search.storage.schema import WrongVersion, prepare

BUSY_S = 2.0
READ_S = 10.0
"""Seconds that a read may take."""
_STEPS = 10_000
"""Steps of SQLite's machine after which a read looks at its limit: about a millisecond."""


class IndexUnavailable(Exception):
    """The index cannot answer now: busy, full, read-only or closed. What was being written is not there."""


class TimeLimit:
    """When a read ends at the latest: after so many seconds, or as soon as another thread says so."""

    def __init__(self, seconds: float = READ_S) -> None:
        self._until = monotonic() + seconds
        self._stopped = False

    def stop(self) -> None:
        """End the read now: its caller is gone."""
        self._stopped = True

    def is_over(self) -> bool:
        """Return whether the read has to end."""
        return self._stopped or monotonic() >= self._until

    def check(self) -> None:
        """Raise `IndexUnavailable` when the read has to end; for work between its queries."""
        if self.is_over():
            raise IndexUnavailable("reading the index takes too long")


class IndexRefused(Exception):
    """The file is no index that this version can read; it is left as it is."""


class Database:
    """Open from construction to `close`. Raises `IndexRefused` or `IndexUnavailable` when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = Lock()
        self._pooling = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._writer = self._open()

    @contextmanager
    def reading(self, limit: TimeLimit | None = None) -> Generator[sqlite3.Connection]:
        """One unchanging view of the index, for at most `READ_S` or as the limit says. Raises `IndexUnavailable`."""
        limit = limit or TimeLimit()
        with _translate_errors(limit):
            connection = self._take()
            try:
                connection.set_progress_handler(limit.is_over, _STEPS)
                with _transaction(connection, "DEFERRED"):
                    yield connection
            finally:
                connection.set_progress_handler(None, 0)
                self._give_back(connection)

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """The only writer; everything is kept when the block ends, nothing when it raises.

        Raises `IndexUnavailable`.
        """
        with _translate_errors(), self._writing:
            if self._closed:
                raise IndexUnavailable("the index is closed")
            with _transaction(self._writer, "IMMEDIATE"):
                yield self._writer

    def close(self) -> None:
        """Wait for the writer and close every connection; readers that still run close theirs. May be called again."""
        with self._writing, self._pooling:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in (*idle, self._writer):
                connection.close()

    def _take(self) -> sqlite3.Connection:
        with self._pooling:
            if self._closed:
                raise IndexUnavailable("the index is closed")
            if self._idle:
                return self._idle.pop()
        return _connect(self._path)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._pooling:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _open(self) -> sqlite3.Connection:
        try:
            with _translate_errors():
                connection = _connect(self._path)
                try:
                    prepare(connection)
                    turn_on_write_ahead(connection, BUSY_S)  # writes to the file, so it must be ours by then
                except BaseException:
                    connection.close()
                    raise
        except (sqlite3.DatabaseError, WrongVersion) as error:
            raise IndexRefused(f"{self._path} is not an index that can be used: {error}; move it away") from error
        return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")  # reads the file, which may be no database
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Generator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _translate_errors(limit: TimeLimit | None = None) -> Generator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if limit is not None:
            limit.check()
        raise IndexUnavailable(str(error)) from error
