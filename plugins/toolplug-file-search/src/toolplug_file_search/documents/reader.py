"""Reads documents in a kept worker process with bounded memory and CPU time.

A parser holds the interpreter's lock, and a hostile document can take all memory: a thread would not do. A kept process
costs 0.2 ms a document, a new one half a second of CPU time.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Timer
from types import TracebackType
from typing import IO, Any, Self

from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.documents.preparation import READY, Cutting

DEADLINE_S = 60.0
"""Seconds of CPU time that a document may take: a busy machine changes nothing."""
_WALL = 10
"""So many times that by the clock ends a process that waits for something."""
START_S = 120.0
_EXIT_S = 5.0
"""So long a process may take from closing its output to its end."""
MAX_ANSWER = 512 * 1024 * 1024
"""Bytes that a document may have as passages and words, in a file without a name."""
MAX_LINE = 1024 * 1024
_STDERR = 2000
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")


class ReaderUnavailable(Exception):
    """The worker process cannot be started: nothing is known of the document. The text says why."""


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
        self._log = log
        self._folder = folder
        self._deadline_s = deadline_s
        self._reading = Lock()
        self._stopped = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None

    def read(self, name: str, content: bytes) -> Prepared:
        """Return the passages and words of a file.

        Raises `UnreadableDocument`, also for a document that ended the process; `ReaderUnavailable` where there is no
        process; and `ReadingStopped`.
        """
        with self._reading:
            process = self._started()
            spool = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  the result owns it
            try:
                self._read(process, spool, name, content)
                return Prepared(spool, self._stopped)
            except BaseException:
                spool.close()
                raise

    def check(self) -> list[str]:
        """Return what of the packages that read documents cannot be imported.

        Raises `ReaderUnavailable` and `ReadingStopped`.
        """
        with self._reading:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b'{"check": true}\n')
            process.stdin.flush()
            return json.loads(process.stdout.readline(MAX_LINE) or b"[]")

    def rest(self) -> None:
        """End the process until the next document: it keeps 100 MB."""
        with self._reading:
            self._end()

    def stop(self) -> None:
        """End the process at once, in the middle of a document too. `read` raises `ReadingStopped` from then on."""
        self._stopped.set()
        if process := self._process:
            process.kill()

    def close(self) -> None:
        """End the process, and wait for that."""
        self.stop()
        self.rest()

    def _read(self, process: subprocess.Popen[bytes], spool: IO[bytes], name: str, content: bytes) -> None:
        """Copy the answer for one document. What is parsed of it here are single lines."""
        assert process.stdin is not None
        assert process.stdout is not None
        cut = {"chunk_size": self.cutting.size, "overlap": self.cutting.overlap}
        request = {"name": name, "size": len(content), "seconds": self._deadline_s, **cut}
        late = Timer(_WALL * self._deadline_s, process.kill)
        late.start()
        size, line = 0, b""
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.write(content)
            process.stdin.flush()
            while (line := process.stdout.readline(MAX_LINE)).endswith(b"\n") and size <= MAX_ANSWER:
                spool.write(line)
                size += len(line)
                if line.startswith((b'{"end"', b'{"code"')):
                    break
        except BrokenPipeError:
            line = b""
        finally:
            in_time = late.is_alive()
            late.cancel()
            late.join()
        if line.startswith(b'{"code"'):
            self._refuse(json.loads(line))
        if not line.startswith(b'{"end"'):
            raise self._failure(name, in_time=in_time, too_large=size > MAX_ANSWER)

    def _refuse(self, answer: Mapping[str, str]) -> None:
        if answer["code"] == "server_error":
            self._log.error("%s (install toolplug-file-search again, with all that it needs)", answer["message"])
        raise UnreadableDocument(answer["code"], answer["message"])

    def _failure(self, name: str, *, in_time: bool, too_large: bool) -> Exception:
        """Why there is no whole answer: the document ended the process, or took too long."""
        status, said = self._end(wait_s=0.0 if too_large else _EXIT_S)
        if self._stopped.is_set():
            return ReadingStopped()
        if too_large:
            why = f"its passages and words have more than {MAX_ANSWER} bytes"
        elif status == -signal.SIGPROF or not in_time:
            why = f"reading it takes longer than {self._deadline_s:g} s"
        else:
            why = f"its reader ended ({_status(status)})"
            self._log.warning("the reader of documents ended at %r (%s): %s", name, _status(status), said or "no words")
        return UnreadableDocument("too_complex", f"{name!r} cannot be read: {why}")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        if self._stopped.is_set():
            raise ReadingStopped
        self._stderr = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  closed with the process
        command = [sys.executable, "-I", "-m", "toolplug_file_search.documents.worker"]
        try:
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
        except OSError as error:
            raise ReaderUnavailable(f"the reader of documents cannot be started: {error}") from error
        assert process.stdout is not None
        late = Timer(START_S, process.kill)
        late.start()
        try:
            ready = process.stdout.readline() == READY
        finally:
            late.cancel()
            late.join()
        if self._stopped.is_set():
            self._end()
            raise ReadingStopped
        if not ready:
            status, said = self._end(wait_s=_EXIT_S)
            raise ReaderUnavailable(f"the reader of documents does not start ({_status(status)}): {said or 'no words'}")
        return process

    def _end(self, *, wait_s: float = 0.0) -> tuple[int, str]:
        """End the process, which may take so long for it itself. Return its status and the last line that it said."""
        process, self._process = self._process, None
        stderr, self._stderr = self._stderr, None
        status, said = 0, ""
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
            process.kill()
            process.communicate()
            status = process.returncode
        if stderr is not None:
            with stderr:
                stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _STDERR))
                lines = stderr.read().decode("utf-8", "replace").split("\n")
            said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return status, said


def _status(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
