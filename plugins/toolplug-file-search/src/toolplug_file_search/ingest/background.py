"""Reads the files that wait to become searchable, in a thread of its own, one tenant's after another's.

What waits is in the index, so that a process that was killed goes on where it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from toolplug_file_search.documents.analysis import Analyzer
from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.documents.reader import DocumentReader
from toolplug_file_search.storage.database import Database, IndexUnavailable
from toolplug_file_search.storage.indexing import Cutting, Prepared, prepare, put_in, take_out
from toolplug_file_search.storage.selection import EXPIRED

SWEEP_S = 15.0
_WAITING = "SELECT corpus, id, name, CAST(content AS BLOB) FROM files WHERE status = 'waiting'"
_NEXT = f"{_WAITING} ORDER BY corpus <= ?, corpus, place LIMIT 1"


class Indexer:
    """Reads documents and prepares them for the index. Blocks."""

    def __init__(self, reader: DocumentReader, analyzer: Analyzer, cutting: Cutting) -> None:
        self._reader = reader
        self._analyzer = analyzer
        self.cutting = cutting

    def prepared(self, name: str, content: bytes) -> Prepared:
        """Raises `UnreadableDocument`."""
        return prepare(name, self._reader.read(name, content), self.cutting, self._analyzer)


class BackgroundIngest:
    """Runs from `start` to `stop`; `wake` makes it look for files that wait.

    `after` is called when none waits, with a function that returns whether to stop.
    """

    def __init__(
        self,
        database: Database,
        indexer: Indexer,
        log: logging.Logger,
        after: Callable[[Callable[[], bool]], None] = lambda stopped: None,
    ) -> None:
        self._database = database
        self._indexer = indexer
        self._log = log
        self._after = after
        self._woken = Event()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="file-search-ingest", daemon=True)
        self._last_corpus = 0
        self._cause = ""
        self._failures = 0

    def start(self) -> None:
        """Begin with what an earlier process left."""
        self._thread.start()

    def wake(self) -> None:
        """There may be new files."""
        self._woken.set()

    def stop(self) -> None:
        """End after the file that is being read."""
        self._stopped.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                while not self._stopped.is_set() and self._read_next():
                    pass
                self._sweep()
                self._after(self._stopped.is_set)
                self._recovered()
            except IndexUnavailable as error:
                self._failed("the index cannot take in files now", error)
            except Exception as error:  # noqa: BLE001  what embeds is other people's code; files must still be read
                self._failed("the background work of file search failed", error)
            self._woken.wait(SWEEP_S)

    def _failed(self, what: str, error: Exception) -> None:
        """Log each cause once, however often it is met in a row."""
        cause = f"{what}: {error or type(error).__name__}"
        self._failures += 1
        if cause != self._cause:
            unexpected = not isinstance(error, IndexUnavailable)
            self._log.warning("%s; retrying until it works", cause, exc_info=unexpected)
        self._cause = cause

    def _recovered(self) -> None:
        if self._failures:
            self._log.warning("files are taken in again, after %d failed attempts", self._failures)
        self._cause, self._failures = "", 0

    def _read_next(self) -> bool:
        with self._database.reading() as connection:
            row = connection.execute(_NEXT, (self._last_corpus,)).fetchone()
        if row is None:
            return False
        corpus, file_id, name, content = row
        self._last_corpus = corpus
        prepared: Prepared | None = None
        failure = UnreadableDocument("", "")
        try:
            prepared = self._indexer.prepared(name, content)
        except UnreadableDocument as error:
            failure = error
        except Exception:  # noqa: BLE001  one file must not keep the others waiting
            self._log.exception("file %s cannot be taken in", file_id)
            failure = UnreadableDocument("server_error", "the file cannot be taken in; the log of the server says why")
        with self._database.writing() as connection:
            waits = "SELECT 1 FROM files WHERE id = ? AND status = 'waiting'"
            if not connection.execute(waits, (file_id,)).fetchone():
                pass  # taken out in the meantime
            elif prepared is not None:
                put_in(connection, corpus, file_id, prepared)
            else:
                connection.execute(
                    "UPDATE files SET status = 'failed', error_code = ?, error = ? WHERE id = ?",
                    (failure.code, str(failure), file_id),
                )
        return True

    def _sweep(self) -> None:
        """Delete files that have expired, and empty the vector stores that have."""
        with self._database.reading() as connection:
            files = connection.execute("SELECT corpus, id FROM files WHERE expires_at <= unixepoch()").fetchall()
            held = connection.execute(
                f"SELECT corpus, file_id FROM members JOIN stores ON stores.id = store_id WHERE {EXPIRED}"
            ).fetchall()
        if files or held:
            with self._database.writing() as connection:
                connection.execute(f"DELETE FROM members WHERE store_id IN (SELECT id FROM stores WHERE {EXPIRED})")
                for corpus, file_id in files:
                    take_out(connection, corpus, file_id)
                    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))
                for corpus, file_id in held:
                    if not connection.execute("SELECT 1 FROM members WHERE file_id = ?", (file_id,)).fetchone():
                        take_out(connection, corpus, file_id)
