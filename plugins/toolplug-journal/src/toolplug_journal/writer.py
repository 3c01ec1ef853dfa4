"""The journal's one writing thread: a call that waits for its entry waits for one commit of many."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from queue import Empty, SimpleQueue
from time import monotonic
from typing import NamedTuple

from toolplug_journal.database import Database
from toolplug_journal.entry import Entry
from toolplug_journal.measures import Measures

WAIT_S = 1.0
"""How long a call waits for the journal before it goes on; its entry is still written."""

MAX_PENDING = 10_000
MAX_BATCH = 500
CLOSE_S = 4.0


class _Pending(NamedTuple):
    entry: Entry
    done: Future[None]


class Writer:
    """Writes entries in the order in which they come, on a connection that it closes at its end.

    No failure reaches the caller: it is counted, and the first of a row is logged.
    """

    def __init__(
        self,
        database: Database,
        connection: sqlite3.Connection,
        measures: Measures,
        clock: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self._database = database
        self._connection = connection
        self._measures = measures
        self._clock = clock
        self._log = log
        self._queue: SimpleQueue[_Pending | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="journal-writer", daemon=True)
        self._closed = False
        self._failing_since = 0.0
        self._thread.start()

    @property
    def failing_s(self) -> float:
        """Seconds since the first of the writes that have failed in a row; 0 if the last one succeeded."""
        since = self._failing_since
        return max(monotonic() - since, 0.001) if since else 0.0

    async def write(self, entry: Entry) -> None:
        """Return when the entry is kept, when that failed, or after a second."""
        pending = _Pending(entry, Future())
        if self._closed:
            # Calls that other providers still drain end after this provider, and its pool of threads, were closed.
            threading.Thread(target=self._write_alone, args=(pending,), name="journal-late", daemon=True).start()
        elif self._queue.qsize() >= MAX_PENDING:
            self._measures.entries("dropped", 1)
            return
        else:
            self._queue.put(pending)
        await asyncio.wait({asyncio.wrap_future(pending.done)}, timeout=WAIT_S)

    def close(self) -> None:
        """Write what is waiting and end the thread. Blocks, at most four seconds."""
        self._closed = True
        self._queue.put(None)
        self._thread.join(CLOSE_S)

    def _main(self) -> None:
        with closing(self._connection) as connection:
            going = True
            while going:
                items = self._take()
                batch = [item for item in items if item is not None]
                going = len(batch) == len(items)
                if batch:
                    self._write(connection, [item.entry for item in batch])
                for item in batch:
                    item.done.set_result(None)

    def _take(self) -> list[_Pending | None]:
        """What is waiting, at least one item."""
        items = [self._queue.get()]
        try:
            while items[-1] is not None and len(items) < MAX_BATCH:
                items.append(self._queue.get_nowait())
        except Empty:
            pass
        return items

    def _write(self, connection: sqlite3.Connection, entries: Sequence[Entry]) -> None:
        try:
            self._database.write(connection, entries, self._clock())
        except sqlite3.Error as error:
            self._note_failure(error, len(entries))
            return
        except Exception as error:  # noqa: BLE001  one entry that cannot be written costs no other its place
            if len(entries) == 1:
                self._note_failure(error, 1)
            else:
                for entry in entries:
                    self._write(connection, [entry])
            return
        self._failing_since = 0.0
        self._measures.entries("kept", len(entries))

    def _write_alone(self, pending: _Pending) -> None:
        try:
            with closing(self._database.connect()) as connection:
                self._write(connection, [pending.entry])
        except sqlite3.Error as error:
            self._note_failure(error, 1)
        pending.done.set_result(None)

    def _note_failure(self, error: Exception, count: int) -> None:
        """Count each, and log the first of a row."""
        self._measures.entries("failed", count)
        if not self._failing_since:
            self._failing_since = monotonic()
            self._log.error("the journal cannot be written: %s; calls go on without it", error)
