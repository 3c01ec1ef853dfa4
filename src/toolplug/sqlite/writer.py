"""Group commit for SQLite: changes that arrive while a transaction is written share the next one."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from toolplug.errors import StoreConflict, StoreError, StoreUnavailable
from toolplug.sqlite.errors import is_busy, store_error
from toolplug.sqlite.file import Connection
from toolplug.stores.changes import BatchResult, Counters, Head, Request, apply_changes
from toolplug.stores.store import VOLATILE

QUIET_S = 60.0
"""A file that fails now and then, such as one on a disk that is nearly full, is logged no more often."""

_LOG = logging.getLogger("toolplug.stores")


class FailureLog:
    """Logs one line when changes of a file begin to fail, and one when they succeed again."""

    __slots__ = ("_clock", "_path", "_quiet_until", "_told")

    def __init__(self, path: Path, *, clock: Callable[[], float] = monotonic) -> None:
        self._path = path
        self._clock = clock
        self._told = False
        self._quiet_until = -float("inf")

    def record_failure(self, error: StoreError) -> None:
        """Note that a change could not be written."""
        now = self._clock()
        if not self._told and now >= self._quiet_until:
            self._told = True
            self._quiet_until = now + QUIET_S
            _LOG.error("changes cannot be kept: %s", error)

    def record_success(self) -> None:
        """Note that a change was written."""
        if self._told:
            self._told = False
            _LOG.warning("%s can be written again", self._path)


_PURGED_AT_ONCE = 64

# The records that the batch names, and a bounded number of expired ones.
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
    connection: sqlite3.Connection, changes: Sequence[Request], *, now: float, kept_events: int
) -> BatchResult:
    """Write all changes that do not conflict in one transaction. Raises `sqlite3.Error`, and then none is written."""
    if connection.in_transaction:
        # An earlier rollback failed with its batch.
        connection.execute("ROLLBACK")
    # The lock for writing at once: a transaction that begins by reading and writes later fails if another has written.
    connection.execute("BEGIN IMMEDIATE")
    try:
        settlement = _apply(connection, changes, now)
        _write(connection, settlement, kept_events)
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return settlement


def last_commit(connection: sqlite3.Connection) -> int:
    """Return the number of the last transaction of any process that wrote something."""
    (number,) = connection.execute("SELECT commits FROM counters").fetchone()
    return number


def remove_volatile(connection: sqlite3.Connection) -> None:
    """Remove the volatile records that the last processes left. Raises `sqlite3.Error`."""
    # All keys that begin with `~`, as a range that the index can use.
    volatile = (VOLATILE, chr(ord(VOLATILE) + 1))
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute("SELECT max(revision) FROM records WHERE key >= ? AND key < ?", volatile)
    (revision,) = found.fetchone()
    if revision is not None:
        connection.execute("DELETE FROM events WHERE key >= ? AND key < ?", volatile)
        connection.execute("DELETE FROM records WHERE key >= ? AND key < ?", volatile)
        connection.execute("UPDATE counters SET removed = max(removed, ?), commits = commits + 1", [revision])
    connection.execute("COMMIT")


def _apply(connection: sqlite3.Connection, changes: Sequence[Request], now: float) -> BatchResult:
    removed, position, commits = connection.execute("SELECT removed, position, commits FROM counters").fetchone()
    heads = connection.execute(
        _HEADS,
        {"keys": json.dumps([change.key for change in changes]), "now": now, "purged": _PURGED_AT_ONCE},
    )
    stored = {
        key: Head(revision=revision, expires_at=expires_at, origin=origin, position=last, appended=appended)
        for key, revision, expires_at, origin, last, appended in heads
    }
    settlement = apply_changes(changes, stored, Counters(removed, position), now=now)
    settlement.number = commits + 1
    return settlement


def _write(connection: sqlite3.Connection, settlement: BatchResult, kept_events: int) -> None:
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
    connection.execute(
        "UPDATE counters SET removed = ?, position = ?, commits = ?", (*settlement.counters, settlement.number)
    )


# Bounds the time of one transaction, and with it the wait of the first change in it.
_MAX_BATCH = 256
# With one more try of 50 ms at the lock, an answer comes within two seconds.
_PATIENCE_S = 1.8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    change: Request
    answer: asyncio.Future[int]
    give_up_at: float

    def fail(self, error: StoreError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Writer:
    """The only task that writes.

    It calls `committed` with the changes and the result of each transaction, after its COMMIT and before the callers
    are answered.
    """

    def __init__(
        self,
        connection: Connection,
        path: Path,
        *,
        clock: Callable[[], float],
        kept_events: int,
        committed: Callable[[Sequence[Request], BatchResult], None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._place = path.absolute()
        self._file = _file_at(self._place)
        self._clock = clock
        self._kept_events = kept_events
        self._committed = committed
        self._outage = FailureLog(path)
        self._asked: deque[_Asked] = deque()
        self._news = asyncio.Event()
        self._closing = False

    async def write(self, change: Request) -> int:
        """Return the record's revision, 0 if there is none, after the COMMIT. Raises `StoreError`."""
        if self._closing:
            raise StoreUnavailable(f"{self._path} is closed")
        loop = asyncio.get_running_loop()
        asked = _Asked(change=change, answer=loop.create_future(), give_up_at=loop.time() + _PATIENCE_S)
        self._asked.append(asked)
        self._news.set()
        return await asked.answer

    def close(self) -> None:
        """Let `run` end after the queued changes are written."""
        self._closing = True
        self._news.set()

    async def run(self) -> None:
        """Write batches until `close` was called and the queue is empty."""
        try:
            while True:
                while self._asked:
                    await self._write(self._next_batch())
                if self._closing:
                    return
                # No change can be lost in between: nothing is awaited between the last look at the queue and this line.
                self._news.clear()
                await self._news.wait()
        finally:
            self._closing = True
            # Also when this task is cancelled: nobody would answer those that wait.
            _fail_all(self._asked, StoreUnavailable(f"{self._path} was closed before this change was written"))

    def _next_batch(self) -> list[_Asked]:
        batch = [self._asked.popleft() for _ in range(min(len(self._asked), _MAX_BATCH))]
        # A caller that was cancelled while waiting finds nothing done.
        return [asked for asked in batch if not asked.answer.done()]

    async def _write(self, batch: Sequence[_Asked]) -> None:
        if not batch:
            return
        changes = [asked.change for asked in batch]
        try:
            write = partial(self._write_batch, changes=changes, now=self._clock())
            settlement = await self._connection.run(write)
        except sqlite3.Error as error:
            self._fail(batch, error)
        except BaseException:
            _fail_all(batch, StoreUnavailable(f"{self._path} was closed while this change was being written"))
            raise
        else:
            self._outage.record_success()
            # Before the answers: whoever is answered must find that the readers of this process know of the change.
            self._committed(changes, settlement)
            _answer_all(batch, settlement)

    def _write_batch(self, connection: sqlite3.Connection, changes: Sequence[Request], now: float) -> BatchResult:
        """Write a batch. Raises `sqlite3.Error`, also if the file was deleted, which SQLite itself does not notice."""
        # Device and inode: SQLite would go on writing to a deleted file, whose changes nobody ever sees.
        if _file_at(self._place) != self._file:
            raise sqlite3.OperationalError("deleted or replaced while it was open; put it back, or start again")
        return write_batch(connection, changes, now=now, kept_events=self._kept_events)

    def _fail(self, batch: Sequence[_Asked], error: sqlite3.Error) -> None:
        """Fail the batch; if another process holds the lock, only the changes that have waited for their timeout."""
        now = asyncio.get_running_loop().time()
        again = [asked for asked in batch if is_busy(error) and asked.give_up_at > now]
        # In front, in their order: later changes must not overtake them.
        self._asked.extendleft(reversed(again))
        failed = [asked for asked in batch if asked not in again]
        if failed:
            told = store_error(error, self._path)
            self._outage.record_failure(told)
            _fail_all(failed, told)


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _fail_all(batch: Iterable[_Asked], error: StoreError) -> None:
    for asked in batch:
        asked.fail(error)


def _answer_all(batch: Sequence[_Asked], settlement: BatchResult) -> None:
    for asked, answer in zip(batch, settlement.answers, strict=True):
        if isinstance(answer, StoreConflict):
            asked.fail(answer)
        elif not asked.answer.done():
            asked.answer.set_result(answer)
