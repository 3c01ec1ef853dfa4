"""Reads documents: text in this process, everything that needs a parser in a kept worker process with bounds.

A parser holds the interpreter's lock, and a hostile document can take all memory: a thread would not do. A kept process
costs 0.2 ms a document, a new one a third of a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from threading import Lock, Timer

from toolplug_file_search.documents.conversion import Document, convert
from toolplug_file_search.documents.formats import PARSED, Format, UnreadableDocument, detect

DEADLINE_S = 60.0
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")


class DocumentReader:
    """Reads one document after the other; `close` ends its process. Blocks, and is called in threads."""

    def __init__(self, *, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._reading = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, name: str, content: bytes) -> Document:
        """Return the text of a file. Raises `UnreadableDocument`."""
        kind = detect(name, content)
        if kind not in PARSED:
            return convert(kind, name, content)
        with self._reading:
            return self._parsed(kind, name, content)

    def close(self) -> None:
        """End the worker process, after the document that it is at."""
        with self._reading:
            self._end()

    def _parsed(self, kind: Format, name: str, content: bytes) -> Document:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        request = json.dumps({"kind": kind, "name": name, "size": len(content)}).encode()
        late = Timer(self._deadline_s, process.kill)
        late.start()
        try:
            process.stdin.write(request + b"\n" + content)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            in_time = late.is_alive()
            late.cancel()
            late.join()
        if not line.endswith(b"\n"):
            self._end()
            why = "its reader ended" if in_time else f"reading it takes longer than {self._deadline_s:g} s"
            raise UnreadableDocument("too_complex", f"{name!r} cannot be read: {why}")
        answer = json.loads(line)
        if "code" in answer:
            raise UnreadableDocument(answer["code"], answer["message"])
        return Document(answer["text"], answer["layout"])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", "toolplug_file_search.documents.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
