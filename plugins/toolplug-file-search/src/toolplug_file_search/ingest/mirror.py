"""Keeps the index of the operator's files as the files are: new ones in, changed ones again, deleted ones out.

Each look is a thread of its own: a search waits for it, but never longer than `LOOK_S`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import NamedTuple

from toolplug_file_search.documents.formats import KNOWN, UnreadableDocument
from toolplug_file_search.documents.reader import DocumentReader, ReaderUnavailable, ReadingStopped
from toolplug_file_search.ingest.background import STOP_S
from toolplug_file_search.ingest.local_files import LocalFile, Pattern, local_files
from toolplug_file_search.storage.database import Database, IndexUnavailable
from toolplug_file_search.storage.indexing import put_in, take_out
from toolplug_file_search.storage.schema import corpus_number, made_corpus

READ_ONLY = "operator"
LOOK_S = 10.0
"""So long a search waits for a look that it begins, or for the first one; then it answers from what is there."""
_FORM = "3"
"""Changes when words are kept in another form: every file is read again."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What the index has of a file."""

    id: str
    bytes: int
    modified_ns: int
    fingerprint: str


class Progress(NamedTuple):
    """How many of the operator's files the look that is under way has come to."""

    done: int
    total: int


class Mirror:
    """Looks at the files when asked, at most every `refresh_s` seconds. Every method blocks.

    A file is looked into when its size or time of change differs, and indexed when its content does. Each is a
    transaction of its own, so that a look that was interrupted goes on where it was. A file that cannot be searched is
    kept with the reason, and looked into again when it changes or the process starts again.
    """

    progress: Progress | None = None
    """Of the look that is under way."""
    problem: str = ""
    """Why the last look could not read files, empty where it could."""

    def __init__(
        self,
        database: Database,
        patterns: Sequence[Pattern],
        reader: DocumentReader,
        *,
        max_file_bytes: int,
        refresh_s: float,
        log: logging.Logger,
        ingested: Callable[[int], None],
        looked: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._patterns = patterns
        self._reader = reader
        cutting = reader.cutting
        self._cut_as = f"{_FORM}/{cutting.size}/{cutting.overlap}/"  # begins each fingerprint
        self._max_file_bytes = max_file_bytes
        self._refresh_s = refresh_s
        self._log = log
        self._ingested = ingested
        self._looked = looked
        self._clock = clock
        self._starting = Lock()
        self._thread: Thread | None = None
        self._done = Event()
        self._looked_at: float | None = None
        self._failure: IndexUnavailable | None = None
        self._stopped = Event()

    def begin(self) -> bool:
        """Begin a look if it is time and none is under way. Return whether this call began it."""
        with self._starting:
            due = self._looked_at is None or (self._patterns and self._clock() - self._looked_at >= self._refresh_s)
            if not due or self._stopped.is_set() or (self._thread is not None and not self._done.is_set()):
                return False
            self._done.clear()
            self._failure = None
            self._thread = Thread(target=self._run, name="file-search-look", daemon=True)
            self._thread.start()
            return True

    def refresh(self, *, wait_s: float = LOOK_S) -> None:
        """Look if it is time, and wait for that; while another caller's look runs only for the very first.

        Raises `IndexUnavailable` as long as no look has ended: from then on, what is indexed is good enough.
        """
        if self.begin() or self._looked_at is None:
            self._done.wait(wait_s)
        if self._looked_at is None and self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End a look that is under way at once; the file that it is at is read by the next process."""
        self._stopped.set()
        self._reader.stop()
        if self._thread is not None:
            self._thread.join(STOP_S)
        self._reader.close()

    def _run(self) -> None:
        try:
            self._look()
            self._looked_at, self._failure, self.problem = self._clock(), None, ""
        except ReadingStopped:
            return
        except (IndexUnavailable, ReaderUnavailable) as error:
            if not self._stopped.is_set():
                self._fail(error)
        except Exception:  # noqa: BLE001  searches go on with what is indexed
            self._log.exception("the local files cannot be looked at")
            self._looked_at = self._clock()
        finally:
            self.progress = None
            self._reader.rest()
            self._done.set()
        self._looked()

    def _fail(self, error: IndexUnavailable | ReaderUnavailable) -> None:
        if str(error) != self.problem:
            self._log.warning("changes of the local files are not indexed yet: %s; the next search tries again", error)
        self.problem = str(error)
        if isinstance(error, ReaderUnavailable) or self._looked_at is not None:
            self._looked_at = self._clock()
        else:
            self._failure = error

    def _look(self) -> None:
        known, skipped = self._read_known(), self._skipped_files()
        files = list(self._files())
        for place, file in enumerate(files):
            self._check_stopped()
            self.progress = Progress(place, len(files))
            self._update(file, known.get(file.name), skipped.get(file.name))
        there = {file.name for file in files}
        for name in known.keys() - there:
            self._forget(known[name].id)
        for name in skipped.keys() - there:
            with self._database.writing() as connection:
                connection.execute("DELETE FROM skipped WHERE name = ?", (name,))

    def _files(self) -> Iterator[LocalFile]:
        for file in local_files(self._patterns):
            self._check_stopped()
            yield file._replace(name=_show(file.name))

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise ReadingStopped

    def _read_known(self) -> dict[str, _Known]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name, id, bytes, modified_ns, fingerprint FROM files WHERE corpus = ?",
                (corpus_number(connection, None),),
            )
            return {name: _Known(*values) for name, *values in rows}

    def _skipped_files(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of each file that could not be searched; none at the first look of a process."""
        if self._looked_at is None:
            with self._database.writing() as connection:
                connection.execute("DELETE FROM skipped")
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name, bytes, modified_ns FROM skipped")
            return {name: (size, modified) for name, size, modified in rows}

    def _update(self, file: LocalFile, known: _Known | None, skipped: tuple[int, int] | None) -> None:
        try:
            state = file.path.stat()
        except OSError as error:
            self._skip(file, str(error), (0, 0), known)
            return
        if skipped == (state.st_size, state.st_mtime_ns) or (known and self._looks_the_same(known, state)):
            return
        try:
            if not file.path.name.isprintable():
                raise UnreadableDocument("invalid_file_name", f"the name {file.name!r} cannot be shown")
            if not file.supported:
                suffix = file.path.suffix or "no suffix"
                raise UnreadableDocument("unsupported_file", f"a file with {suffix!r}; {KNOWN}")
            content = self._read(file, state.st_size)
            self._take_in(file, known, state, content)
        except (OSError, UnreadableDocument) as error:
            self._skip(file, str(error), (state.st_size, state.st_mtime_ns), known)

    def _take_in(self, file: LocalFile, known: _Known | None, state: os.stat_result, content: bytes) -> None:
        fingerprint = self._cut_as + hashlib.sha256(content).hexdigest()
        if known and known.fingerprint == fingerprint:
            with self._database.writing() as connection:
                connection.execute("UPDATE files SET modified_ns = ? WHERE id = ?", (state.st_mtime_ns, known.id))
            return
        with self._reader.read(file.name, content) as prepared, self._database.writing() as connection:
            corpus = made_corpus(connection, None)
            file_id = f"file-{hashlib.sha256(file.name.encode()).hexdigest()[:24]}"
            _delete(connection, corpus, file_id)
            connection.execute("DELETE FROM skipped WHERE name = ?", (file.name,))
            connection.execute(
                "INSERT INTO files (id, corpus, name, purpose, bytes, fingerprint, modified_ns, created_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    file_id,
                    corpus,
                    file.name,
                    READ_ONLY,
                    len(content),
                    fingerprint,
                    state.st_mtime_ns,
                    int(state.st_mtime),
                ),
            )
            left_out = put_in(connection, corpus, file_id, prepared)
        if left_out:
            self._log.warning("%r is searched without %s", file.name, left_out)
        self._ingested(len(content))

    def _looks_the_same(self, known: _Known, state: os.stat_result) -> bool:
        same = (known.bytes, known.modified_ns) == (state.st_size, state.st_mtime_ns)
        return same and known.fingerprint.startswith(self._cut_as)

    def _read(self, file: LocalFile, size: int) -> bytes:
        if size > self._max_file_bytes:
            raise UnreadableDocument(
                "file_too_large", f"{file.name!r} has {size} bytes, max_file_bytes allows {self._max_file_bytes}"
            )
        with file.path.open("rb") as opened:
            return opened.read(self._max_file_bytes)

    def _forget(self, file_id: str) -> None:
        with self._database.writing() as connection:
            _delete(connection, made_corpus(connection, None), file_id)

    def _skip(self, file: LocalFile, reason: str, state: tuple[int, int], known: _Known | None) -> None:
        if known:
            self._forget(known.id)
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO skipped (name, reason, bytes, modified_ns) VALUES (?, ?, ?, ?)",
                (file.name, reason, *state),
            )
        if file.supported:
            self._log.warning("%s; it is not searched", reason)


def _show(name: str) -> str:
    """The name, with escapes for what cannot be shown or kept."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _delete(connection: sqlite3.Connection, corpus: int, file_id: str) -> None:
    take_out(connection, corpus, file_id)
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))
