"""Reads the files that wait to become searchable, in a thread of its own, one tenant's after another's.

What waits is in the index, so that a process that was killed goes on where it was; and so is how often each file was
begun, so that one that ends the process is not read again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.documents.reader import DocumentReader, ReaderUnavailable, ReadingStopped
from toolplug_file_search.storage.database import Database, IndexUnavailable
from toolplug_file_search.storage.indexing import put_in, take_out
from toolplug_file_search.storage.selection import EXPIRED

SWEEP_S = 15.0
STOP_S = 3.0
"""So long the end of the thread is waited for, which may be at a server of embeddings; then it is left alone."""
MAX_TRIES = 3
"""A file that was begun so often, and never came to an end, has failed: its process was killed each time."""
_NEXT = "SELECT corpus, id, name, tries FROM files WHERE status = 'waiting' ORDER BY corpus <= ?, corpus, place LIMIT 1"
_WAITS = "SELECT 1 FROM files WHERE id = ? AND status = 'waiting'"


class BackgroundIngest:
    """Runs from `start` to `stop`; `wake` makes it look for files that wait.

    `after` is called when none waits, with a function that returns whether to stop.
    """

    def __init__(
        self,
        database: Database,
        reader: DocumentReader,
        log: logging.Logger,
        after: Callable[[Callable[[], bool]], None] = lambda stopped: None,
    ) -> None:
        self._database = database
        self._reader = reader
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
        """End at once; a file that is being read waits for the next process."""
        self._stopped.set()
        self._woken.set()
        self._reader.stop()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        self._reader.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                while not self._stopped.is_set() and self._read_next():
                    pass
                self._sweep()
                self._after(self._stopped.is_set)
                self._note_recovery()
            except ReadingStopped:
                return
            except (IndexUnavailable, ReaderUnavailable) as error:
                self._note_failure("the index cannot take in files now", error)
            except Exception as error:  # noqa: BLE001  what embeds is other people's code; files must still be read
                self._note_failure("the background work of file search failed", error)
            if not self._woken.wait(SWEEP_S):
                self._reader.rest()

    def _note_failure(self, what: str, error: Exception) -> None:
        """Log each cause once, however often it is met in a row."""
        cause = f"{what}: {error or type(error).__name__}"
        self._failures += 1
        if self._stopped.is_set():
            return
        if cause != self._cause:
            unexpected = not isinstance(error, IndexUnavailable | ReaderUnavailable)
            self._log.warning("%s; retrying until it works", cause, exc_info=unexpected)
        self._cause = cause

    def _note_recovery(self) -> None:
        if self._failures:
            self._log.warning("files are taken in again, after %d failed attempts", self._failures)
        self._cause, self._failures = "", 0

    def _read_next(self) -> bool:
        with self._database.writing() as connection:
            row = connection.execute(_NEXT, (self._last_corpus,)).fetchone()
            if row is None:
                return False
            corpus, file_id, name, tries = row
            connection.execute("UPDATE files SET tries = tries + 1 WHERE id = ?", (file_id,))
        self._last_corpus = corpus
        if tries >= MAX_TRIES:
            reason = f"{name!r} cannot be read: the process ended {tries} times while it was read"
            self._fail(file_id, UnreadableDocument("too_complex", reason))
            return True
        try:
            self._take_in(corpus, file_id, name)
        except (ReadingStopped, ReaderUnavailable, IndexUnavailable):
            with self._database.writing() as connection:  # nothing is known of the file yet
                connection.execute("UPDATE files SET tries = ? WHERE id = ?", (tries, file_id))
            raise
        except UnreadableDocument as error:
            self._fail(file_id, error)
        except Exception:  # noqa: BLE001  one file must not keep the others waiting
            self._log.exception("file %s cannot be taken in", file_id)
            message = "the file cannot be taken in; the log of the server says why"
            self._fail(file_id, UnreadableDocument("server_error", message))
        return True

    def _take_in(self, corpus: int, file_id: str, name: str) -> None:
        with self._database.reading() as connection:
            row = connection.execute("SELECT CAST(content AS BLOB) FROM files WHERE id = ?", (file_id,)).fetchone()
        if row is None:
            return
        with self._reader.read(name, row[0]) as prepared, self._database.writing() as connection:
            if connection.execute(_WAITS, (file_id,)).fetchone() is None:
                return  # taken out in the meantime
            left_out = put_in(connection, corpus, file_id, prepared)
        if left_out:
            self._log.warning("%r of file %s is searched without %s", name, file_id, left_out)

    def _fail(self, file_id: str, failure: UnreadableDocument) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE files SET status = 'failed', error_code = ?, error = ? WHERE id = ? AND status = 'waiting'",
                (failure.code, str(failure), file_id),
            )

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
