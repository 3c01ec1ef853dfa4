"""Creating, checking and opening the SQLite file.

A file is checked through connections that cannot write, so that one which this version cannot use stays unchanged.

One connection to SQLite, on its own thread. Needs aiosqlite (extra `sqlite`).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Literal, Self, TypeVar, cast

import aiosqlite

from toolplug.errors import StoreRefused
from toolplug.sqlite.errors import is_busy, is_corrupt, real_path, told_as_store_errors

# How long a thread may take to end that could not connect.
_END_S = 2.0

Value = str | bytes | int | float | None
Result = TypeVar("Result")


class Connection:
    """A SQLite connection that does its work in the order of the calls.

    Work whose caller is cancelled is still done. Each method may raise `sqlite3.Error`.
    """

    def __init__(self, connection: _DaemonConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, connector: Callable[[], sqlite3.Connection]) -> Self:
        """Call `connector` on the connection's thread. Its errors are raised here, after the thread has ended."""
        # 64 rows a step is aiosqlite's own number; `rows` fetches all at once, so that it has no effect here.
        connection = _DaemonConnection(connector, iter_chunk_size=64)
        try:
            await connection
        except BaseException:
            # Else the thread could still open the file after this has raised, and a test that removes the folder would
            # fail.
            await asyncio.wait([connection.stopped], timeout=_END_S)
            raise
        return cls(connection)

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Call `work` on the connection's thread. One call for several statements saves changes of threads."""
        return await self._connection.perform(work)

    async def rows(self, sql: str, parameters: Mapping[str, Value] | Sequence[Value] = ()) -> list[sqlite3.Row]:
        """Run a statement and return all its rows as tuples."""
        return await self.run(lambda connection: connection.execute(sql, parameters).fetchall())

    def close(self) -> asyncio.Future[object]:
        """Finish the queued work, roll back what is not committed, and end the thread, which completes the future."""
        self._connection.stop()
        return self._connection.stopped


class _DaemonConnection(aiosqlite.Connection):
    """An aiosqlite connection on a daemon thread, so that a disk that hangs does not keep the interpreter from ending.

    `stopped` is done when the thread has ended, after `stop`, or after a connection that failed.
    """

    stopped: asyncio.Future[object]

    def __init__(self, connector: Callable[[], sqlite3.Connection], iter_chunk_size: int) -> None:
        super().__init__(connector, iter_chunk_size)
        # Before 0.22 a connection is a thread itself, and has `_stop_running` instead of `stop`.
        thread = cast("Thread", getattr(self, "_thread", self))
        thread.daemon = True

    async def perform(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return cast("Result", await self._execute(work, self._conn))  # pyright: ignore[reportUnknownMemberType] untyped there

    def stop(self) -> asyncio.Future[object] | None:
        if not hasattr(aiosqlite.Connection, "stop"):
            return self._stop_old()
        stopped = cast("asyncio.Future[object] | None", super().stop())  # pyright: ignore[reportUnknownMemberType] untyped there
        # Without an event loop, when it is thrown away unclosed, there is no future.
        if stopped is not None:
            self.stopped = stopped
        return stopped

    def _stop_old(self) -> asyncio.Future[object]:
        """Stop as `stop` of 0.22 does: after the queued work the thread closes the file and ends."""
        self.stopped = asyncio.get_running_loop().create_future()
        self._tx.put_nowait((self.stopped, self._close_file))  # pyright: ignore[reportUnknownMemberType] untyped there
        getattr(super(), "_stop_running")()  # noqa: B009  the newer versions, whose types are checked, have none
        return self.stopped

    def _stop_running(self) -> None:
        """End the thread of a connection that failed, which aiosqlite before 0.22 calls."""
        self.stop()

    def _close_file(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


Synchronous = Literal["normal", "full"]

_APPLICATION_ID = 0x746F706C
_SCHEMA_VERSION = 1
_MAGIC = b"SQLite format 3\x00"
# Together under the two seconds that a start may take.
_PATIENCE_S = 1.4
_CHECK_S = 0.4
_BUSY_S = 0.05

_COUNT_COMMITS = "ALTER TABLE counters ADD COLUMN commits INTEGER NOT NULL DEFAULT 0"
_SCHEMA = (
    "CREATE TABLE counters (removed INTEGER NOT NULL, position INTEGER NOT NULL)",
    "INSERT INTO counters VALUES (0, 0)",
    # Separate, as files of 1.0 are without it and get it when they are opened; that version leaves it as it is.
    _COUNT_COMMITS,
    """CREATE TABLE records (
        key TEXT NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        expires_at REAL,
        origin INTEGER NOT NULL,
        position INTEGER NOT NULL,
        appended INTEGER NOT NULL,
        value BLOB NOT NULL
    )""",
    "CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE TABLE events (id INTEGER NOT NULL PRIMARY KEY, key TEXT NOT NULL, data BLOB NOT NULL)",
    "CREATE INDEX events_by_key ON events (key, id)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFile:
    """The path of the file and the options of its connections, as for `SqliteStore`."""

    path: Path
    synchronous: Synchronous = "normal"
    connection: type[sqlite3.Connection] = sqlite3.Connection

    def open_for_writing(self) -> sqlite3.Connection:
        """Create the file if it does not exist, check it, and open it. Raises the errors of `Store`."""
        with told_as_store_errors(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite itself would make the file readable for all, as the umask says.
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # Whoever reads a pipe or a terminal waits for what never comes.
                is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            finally:
                os.close(descriptor)
            if not is_file:
                raise StoreRefused(f"{self.path} is no regular file; name another in `store`")
            self._check()
            return self._patiently_open()

    def open_for_reading(self) -> sqlite3.Connection:
        """Open a connection that reads, next to the writer's."""
        with told_as_store_errors(self.path):
            connection = self._connect("mode=rw", busy_s=_PATIENCE_S)
            connection.execute("PRAGMA query_only = 1")
            return connection

    def _connect(self, options: str, *, busy_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{options}",
            uri=True,
            timeout=busy_s,
            # Transactions are begun by hand: the module's own handling begins one before each change, and none before a
            # SELECT.
            isolation_level=None,
            factory=self.connection,
        )

    def _check(self) -> None:
        """Raise `StoreRefused` for a file that is damaged, of another program, or of a newer version."""
        with self.path.open("rb") as file:
            begin = file.read(len(_MAGIC))
        if not begin:
            return
        if begin != _MAGIC:
            raise StoreRefused(f"{self.path} is not a SQLite file; move it away, or name another in `store`")
        # Each name would have a log of its own (sqlite.org/howtocorrupt.html, "Multiple links to the same file").
        if (names := self.path.stat().st_nlink) > 1:
            raise StoreRefused(
                f"{self.path} has {names} names by hard links, and SQLite damages a file that is opened by two of "
                "them; remove the others, or replace them by symbolic links"
            )
        # Without a write-ahead log nothing but the file counts, and a connection that takes it as immutable makes no
        # files next to it. With one, SQLite must read both, and makes the log's index where it is missing.
        real = real_path(self.path)
        log = real.with_name(f"{real.name}-wal")
        connection = self._connect("mode=ro" if log.exists() else "mode=ro&immutable=1", busy_s=_BUSY_S)
        try:
            _check_origin(connection, self.path)
            _check_pages(connection, self.path)
        except sqlite3.Error as error:
            if is_corrupt(error):
                raise
            # The time for looking is over; or the journal of a process that died while it made the file is there,
            # which only a writer can roll back: it checks again.
        finally:
            connection.close()

    def _patiently_open(self) -> sqlite3.Connection:
        give_up_at = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._open_once()
            except sqlite3.Error as error:
                # Two processes that begin at once: SQLite does not wait for this lock by itself.
                if not is_busy(error) or time.monotonic() >= give_up_at:
                    raise
                time.sleep(0.02)

    def _open_once(self) -> sqlite3.Connection:
        with ExitStack() as undo:
            connection = self._connect("mode=rw", busy_s=_BUSY_S)
            undo.callback(connection.close)
            _prepare(connection, self.path, self.synchronous)
            undo.pop_all()
        return connection


def _check_origin(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file has our tables, False if it is empty. Raises `StoreRefused` for any other file."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if (application_id, version, tables) == (0, 0, 0):
        return False
    if application_id != _APPLICATION_ID:
        raise StoreRefused(f"{path} is a SQLite file of another program; name another in `store`")
    if version > _SCHEMA_VERSION:
        raise StoreRefused(
            f"{path} was written by a newer toolplug (schema {version}; this one knows {_SCHEMA_VERSION}); "
            "install that version again, or name another file in `store`"
        )
    return True


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    """Look for damaged pages within the time limit of a start, so that a large file is checked in part."""
    give_up_at = time.monotonic() + _CHECK_S
    # Called every 10,000 steps of SQLite's machine; a true value ends the check as an interruption.
    connection.set_progress_handler(lambda: time.monotonic() >= give_up_at, 10_000)
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreRefused(f"{path} is corrupt ({found}); move it away or restore a copy")


def _prepare(connection: sqlite3.Connection, path: Path, synchronous: Synchronous) -> None:
    ready = _check_origin(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    # 64 MiB: after a burst the log would keep its size for ever.
    connection.execute("PRAGMA journal_size_limit = 67108864")
    if not ready:
        _fill(connection, path)
    # Asked twice, the second time under the lock: two processes may open an old file together.
    if not _counts_commits(connection):
        connection.execute("BEGIN IMMEDIATE")
        if not _counts_commits(connection):
            connection.execute(_COUNT_COMMITS)
        connection.execute("COMMIT")


def _counts_commits(connection: sqlite3.Connection) -> bool:
    return any(name == "commits" for _, name, *_ in connection.execute("PRAGMA table_info(counters)"))


def _fill(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have filled it while this one waited for the lock.
    if _check_origin(connection, path):
        connection.execute("ROLLBACK")
        return
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute("COMMIT")
