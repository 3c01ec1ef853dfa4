"""Reads documents in a process of their own with bounded memory and CPU time.

A parser holds the interpreter's lock, and a hostile document can take all memory: a thread would not do. The process is
kept: that costs 0.2 ms a document, a new one half a second of CPU time.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import IO, Any, Self

from toolplug.apart import ApartCallFailed, FunctionProcess
from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.documents.preparation import Cutting
from toolplug_file_search.documents.worker import answer

DEADLINE_S = 60.0
"""Seconds of CPU time that a document may take: a busy machine changes nothing."""
MAX_MEMORY = 1024 * 1024 * 1024
MAX_ANSWER = 512 * 1024 * 1024
"""Bytes that a document may have as passages and words, in a file without a name."""
_MAX_LAST = 64 * 1024
"""Bytes of the last line: the names of twenty parts that could not be read."""


class ReaderUnavailable(Exception):
    """The process cannot be started: nothing is known of the document. The text says why."""


class ReadingStopped(Exception):
    """The reader was closed while it read a document."""


class Prepared:
    """A document that is ready for the index, in a temporary file that ends with the `with` block.

    `compounds`: its language writes several words as one; `name` are the words of its name.
    """

    def __init__(self, spool: IO[bytes], stopped: Event) -> None:
        self._spool = spool
        self._stopped = stopped
        spool.seek(0)
        head = json.loads(spool.readline())
        self.compounds: bool = head["compounds"]
        self.language: str = head["language"]
        self.name: str = head["name"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()

    def parts(self) -> Iterator[Mapping[str, Any]]:
        """Yield what `preparation.prepare` describes, after the head. Raises `ReadingStopped`."""
        for line in self._spool:
            if self._stopped.is_set():
                raise ReadingStopped
            yield json.loads(line)


class DocumentReader:
    """Reads one document after the other; its process starts with the first. Blocks, and is called in threads.

    `folder` is for temporary files without a name.
    """

    def __init__(
        self, cutting: Cutting, log: logging.Logger, folder: Path | None = None, *, deadline_s: float = DEADLINE_S
    ) -> None:
        self.cutting = cutting
        self.process: FunctionProcess = FunctionProcess(
            answer, seconds=deadline_s, memory=MAX_MEMORY, max_bytes=MAX_ANSWER
        )
        self._log = log
        self._folder = folder
        self._stopped = Event()

    def read(self, name: str, content: bytes) -> Prepared:
        """Return the passages and words of a file.

        Raises `UnreadableDocument`, also for a document that ended the process; `ReaderUnavailable` where there is no
        process; and `ReadingStopped`.
        """
        asked = {"name": name, "chunk_size": self.cutting.size, "overlap": self.cutting.overlap}
        spool = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  the result owns it
        try:
            self.process.run(json.dumps(asked).encode() + b"\n" + content, spool)
            _refuse(spool)
            return Prepared(spool, self._stopped)
        except ApartCallFailed as error:
            spool.close()
            raise self._failure(name, error) from None
        except BaseException:
            spool.close()
            raise

    def check(self) -> list[str]:
        """Return what of the packages that read documents cannot be imported.

        Raises `ReaderUnavailable` and `ReadingStopped`.
        """
        found = BytesIO()
        try:
            self.process.run(b'{"check": true}\n', found)
        except ApartCallFailed as error:
            if error.reason == "stopped":
                raise ReadingStopped from None
            raise ReaderUnavailable(_unavailable(error)) from None
        return json.loads(found.getvalue())

    def rest(self) -> None:
        """End the process until the next document: it keeps 100 MB."""
        self.process.rest()

    def stop(self) -> None:
        """End the process at once, in the middle of a document too. `read` raises `ReadingStopped` from then on."""
        self._stopped.set()
        self.process.stop()

    def close(self) -> None:
        """End the process, and wait for that."""
        self.stop()
        self.process.close()

    def _failure(self, name: str, error: ApartCallFailed) -> Exception:
        """Return what to raise where there is no whole answer."""
        match error.reason:
            case "stopped":
                return ReadingStopped()
            case "start":
                return ReaderUnavailable(_unavailable(error))
            case "import":  # a package is missing: nothing is wrong with the document
                text = f"{name!r} cannot be read: its reader does not start: {error.said}"
                self._log.error("%s (install toolplug-file-search again, with all that it needs)", text)
                return UnreadableDocument("server_error", text)
            case "time":
                why = f"reading it takes longer than {self.process.seconds:g} s"
            case "memory":
                return UnreadableDocument(
                    "too_complex", f"{name!r} needs more memory than {MAX_MEMORY} bytes to be read"
                )
            case "answer":
                why = f"its passages and words have more than {MAX_ANSWER} bytes"
            case _:
                why = str(error).replace("its process", "its reader")
                self._log.warning("the reader of documents ended at %r: %s: %s", name, error, error.said or "no words")
        return UnreadableDocument("too_complex", f"{name!r} cannot be read: {why}")


def _refuse(spool: IO[bytes]) -> None:
    """Raise `UnreadableDocument` where the last line says that the document cannot be read."""
    size = spool.seek(0, os.SEEK_END)
    spool.seek(max(0, size - _MAX_LAST))
    last = spool.read().removesuffix(b"\n").rpartition(b"\n")[2]
    if last.startswith(b'{"code"'):
        found = json.loads(last)
        raise UnreadableDocument(found["code"], found["message"])


def _unavailable(error: ApartCallFailed) -> str:
    return str(error).replace("its process", "the reader of documents", 1)
