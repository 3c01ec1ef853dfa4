"""Keeps the index of the operator's files as the files are: new ones in, changed ones again, deleted ones out."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Lock
from typing import NamedTuple

from toolplug_file_search.documents.formats import KNOWN, UnreadableDocument
from toolplug_file_search.ingest.background import Indexer
from toolplug_file_search.ingest.local_files import LocalFile, Pattern, local_files
from toolplug_file_search.storage.database import Database, IndexUnavailable
from toolplug_file_search.storage.indexing import put_in, take_out
from toolplug_file_search.storage.schema import corpus_number, made_corpus

READ_ONLY = "operator"
FIRST_LOOK_S = 10.0
"""So long a search waits for the first look; after that it answers from what is there."""
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

    def __init__(
        self,
        database: Database,
        patterns: Sequence[Pattern],
        indexer: Indexer,
        *,
        max_file_bytes: int,
        refresh_s: float,
        log: logging.Logger,
        ingested: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._patterns = patterns
        self._indexer = indexer
        cutting = indexer.cutting
        self._cut_as = f"{_FORM}/{cutting.size}/{cutting.overlap}/"  # begins each fingerprint
        self._max_file_bytes = max_file_bytes
        self._refresh_s = refresh_s
        self._log = log
        self._ingested = ingested
        self._clock = clock
        self._looking = Lock()
        self._looked_at: float | None = None
        self._stopped = Event()

    def refresh(self, *, wait_s: float = FIRST_LOOK_S) -> None:
        """Look if it is time; while another thread looks, wait only for the very first time, and not for ever.

        Raises `IndexUnavailable` as long as no look has ended: from then on, what is indexed is good enough.
        """
        if not self._patterns and self._looked_at is not None:
            return
        if not self._looking.acquire(timeout=wait_s if self._looked_at is None else 0):
            return
        try:
            if self._looked_at is None or self._clock() - self._looked_at >= self._refresh_s:
                self._look()
                self._looked_at = self._clock()
        except IndexUnavailable as error:
            if self._looked_at is None:
                raise
            self._looked_at = self._clock()
            self._log.warning("changes of the local files are not indexed yet: %s", error)
        finally:
            self.progress = None
            self._looking.release()

    def stop(self) -> None:
        """End a look that is under way after the file that it is at, and wait for that."""
        self._stopped.set()
        with self._looking:
            pass

    def _look(self) -> None:
        known, skipped = self._known(), self._skipped()
        files = [file._replace(name=_shown(file.name)) for file in local_files(self._patterns)]
        for place, file in enumerate(files):
            if self._stopped.is_set():
                return
            self.progress = Progress(place, len(files))
            self._update(file, known.get(file.name), skipped.get(file.name))
        there = {file.name for file in files}
        for name in known.keys() - there:
            self._forget(known[name].id)
        for name in skipped.keys() - there:
            with self._database.writing() as connection:
                connection.execute("DELETE FROM skipped WHERE name = ?", (name,))

    def _known(self) -> dict[str, _Known]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name, id, bytes, modified_ns, fingerprint FROM files WHERE corpus = ?",
                (corpus_number(connection, None),),
            )
            return {name: _Known(*values) for name, *values in rows}

    def _skipped(self) -> dict[str, tuple[int, int]]:
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
        prepared = self._indexer.prepared(file.name, content)
        with self._database.writing() as connection:
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
            put_in(connection, corpus, file_id, prepared)
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


def _shown(name: str) -> str:
    """The name, with escapes for what cannot be shown or kept."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _delete(connection: sqlite3.Connection, corpus: int, file_id: str) -> None:
    take_out(connection, corpus, file_id)
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))
