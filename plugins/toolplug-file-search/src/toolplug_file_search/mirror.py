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

from toolplug_file_search.database import Database, IndexUnavailable
from toolplug_file_search.documents import UnreadableDocument, document_text
from toolplug_file_search.ingest import Cutting, put_in, take_out
from toolplug_file_search.local_files import LocalFile, Pattern, local_files
from toolplug_file_search.schema import corpus_number, made_corpus

READ_ONLY = "operator"


@dataclass(frozen=True, slots=True)
class _Known:
    """What the index has of a file."""

    id: str
    bytes: int
    modified_ns: int
    fingerprint: str


class Mirror:
    """Looks at the files when asked, at most every `refresh_s` seconds. Every method blocks.

    A file is looked into when its size or time of change differs, and indexed when its content does. Each is a
    transaction of its own, so that a look that was interrupted goes on where it was.
    """

    def __init__(
        self,
        database: Database,
        patterns: Sequence[Pattern],
        cutting: Cutting,
        *,
        max_file_bytes: int,
        refresh_s: float,
        log: logging.Logger,
        ingested: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._patterns = patterns
        self._cutting = cutting
        self._cut_as = f"{cutting.size}/{cutting.overlap}/"  # begins each fingerprint: another size changes every file
        self._max_file_bytes = max_file_bytes
        self._refresh_s = refresh_s
        self._log = log
        self._ingested = ingested
        self._clock = clock
        self._looking = Lock()
        self._looked_at: float | None = None
        self._stopped = Event()
        self._complained: set[tuple[str, str]] = set()

    def refresh(self) -> None:
        """Look if it is time; while another thread looks, wait only for the very first time.

        Raises `IndexUnavailable` as long as no look has ended: from then on, what is indexed is good enough.
        """
        if not self._patterns and self._looked_at is not None:
            return
        if not self._looking.acquire(blocking=self._looked_at is None):
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
            self._looking.release()

    def stop(self) -> None:
        """End a look that is under way after the file that it is at, and wait for that."""
        self._stopped.set()
        with self._looking:
            pass

    def _look(self) -> None:
        known = self._known()
        there: set[str] = set()
        for file in local_files(self._patterns):
            if self._stopped.is_set():
                return
            there.add(file.name)
            self._update(file, known.get(file.name))
        for name in known.keys() - there:
            self._forget(known[name].id)

    def _known(self) -> dict[str, _Known]:
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT name, id, bytes, modified_ns, fingerprint FROM files WHERE corpus = ?",
                (corpus_number(connection, None),),
            )
            return {name: _Known(*values) for name, *values in rows}

    def _update(self, file: LocalFile, known: _Known | None) -> None:
        try:
            state = file.path.stat()
            if known and self._looks_the_same(known, state):
                return
            if not file.name.isprintable():
                raise UnreadableDocument("invalid_file_name", f"the name {file.name!r} cannot be shown")
            content = self._read(file, state.st_size)
            text = document_text(file.name, content)
        except (OSError, UnreadableDocument) as error:
            self._complain(file.name, str(error))
            if known:
                self._forget(known.id)
            return
        fingerprint = self._cut_as + hashlib.sha256(content).hexdigest()
        with self._database.writing() as connection:
            if known and known.fingerprint == fingerprint:
                connection.execute("UPDATE files SET modified_ns = ? WHERE id = ?", (state.st_mtime_ns, known.id))
                return
            corpus = made_corpus(connection, None)
            file_id = f"file-{hashlib.sha256(file.name.encode()).hexdigest()[:24]}"
            _delete(connection, corpus, file_id)
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
            put_in(connection, corpus, file_id, file.name, text, self._cutting)
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

    def _complain(self, name: str, why: str) -> None:
        """Say it once for each file and reason."""
        if (name, why) not in self._complained:
            self._complained.add((name, why))
            self._log.warning("%s; it is not searched", why)


def _delete(connection: sqlite3.Connection, corpus: int, file_id: str) -> None:
    take_out(connection, corpus, file_id)
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))
