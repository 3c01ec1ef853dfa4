"""Bounded reading of a child's output: lines of a maximum length, the tail of stderr, a rate-limited log."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence

from toolplug.catalog.text import clean_text, in_one_line, pluralize
from toolplug.config.masking import mask_secrets

_LOG = logging.getLogger("toolplug.mcp")
_MINUTE_S = 60.0
_PER_MINUTE = 10
_MAX_CHARACTERS = 500


class RateLimitedLog:
    """Logs at most `_PER_MINUTE` lines a minute; the first line of the next minute gives the number of omitted ones."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since = time.monotonic()
        self._written = 0
        self._left_out = 0

    def takes(self) -> bool:
        """Return whether a line would be logged now. If not, it is counted, and the caller need not build it."""
        now = time.monotonic()
        if now - self._since >= _MINUTE_S:
            self._since, self._written = now, 0
        if self._written < _PER_MINUTE:
            return True
        self._left_out += 1
        return False

    def write(self, level: int, what: str, text: str) -> None:
        """Log `what: text`, cut to 500 characters, or count it."""
        if not self.takes():
            return
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        more = f" ({pluralize(left_out, 'line')} left out before)" if left_out else ""
        self._log.log(level, "%s: %s%s", what, text[:_MAX_CHARACTERS], more)


_CHUNK = 64 * 1024


class LineTooLong(Exception):
    """A line exceeds the limit; the rest of it is not read."""


class BoundedLines:
    """The lines of a stream, without their line feeds. It buffers at most one line and one chunk."""

    def __init__(self, stream: asyncio.StreamReader, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._kept = bytearray()

    @property
    def ready(self) -> bool:
        """Return whether the next line is buffered already."""
        return b"\n" in self._kept

    async def next(self) -> bytes | None:
        """Return the next line, None at the end of the stream. Raises `LineTooLong` and the errors of the stream."""
        searched = 0
        while (end := self._kept.find(b"\n", searched)) < 0:
            searched = len(self._kept)
            if searched > self._max_bytes:
                raise LineTooLong
            chunk = await self._stream.read(_CHUNK)
            if not chunk:
                return self._take(searched) or None
            self._kept += chunk
        if end > self._max_bytes:
            raise LineTooLong
        return self._take(end)

    def _take(self, end: int) -> bytes:
        line = bytes(self._kept[:end])
        del self._kept[: end + 1]
        return line


_BEGIN = re.compile(rb"Traceback \(most recent call last")
_FRAME = re.compile(rb"""File "(?P<file>[^"]+)", line (?P<line>\d+)|(?P<path>/\S+\.py):(?P<number>\d+) in """)
_RAISED = re.compile(rb"(?:[A-Za-z_]\w*\.)*(?P<type>[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Group))(?::|$)")
_LIBRARIES = re.compile(rb"[/\\](?:site-packages|dist-packages|lib[/\\]python[\d.]+)[/\\]|^<")


class TracebackReader:
    """Finds the line of a child's own Python code that raised.

    It reads the tracebacks of the interpreter, and those of rich, which the SDK's servers log.
    """

    def __init__(self) -> None:
        self._inside = False
        self._place = b""

    def read(self, line: bytes) -> bytes:
        """Return `KeyError at server.py:9` at the end of a traceback through the child's own code, else nothing."""
        if _BEGIN.search(line):
            self._inside, self._place = True, b""
        elif self._inside and (frame := _FRAME.search(line)):
            file = frame["file"] or frame["path"]
            if not _LIBRARIES.search(file):
                self._place = b"%b:%b" % (file, frame["line"] or frame["number"])
        elif self._inside and (raised := _RAISED.match(line.strip())):
            self._inside, place = False, self._place
            if place:
                return b"%b at %b" % (raised["type"], place)
        return b""


_KEPT = 2048
_TOLD = 400


class StderrTail:
    """Reads standard error to its end, so that the server never blocks on it, and logs some lines a minute.

    The values in `secrets` are masked in the log and in the text.
    """

    def __init__(self, what: str, log: RateLimitedLog, secrets: Sequence[str]) -> None:
        self._what = what
        self._log = log
        self._secrets = secrets
        self._kept = b""
        self._traceback = TracebackReader()

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Read until the stream ends. A line is logged when it is complete, a very long one in pieces."""
        begun = b""
        while chunk := await stream.read(_CHUNK):
            self._kept = (self._kept + chunk)[-_KEPT:]
            *whole, begun = (begun + chunk).split(b"\n")
            for line in whole if len(begun) <= _CHUNK else [*whole, begun]:
                self._say(line)
            if len(begun) > _CHUNK:
                begun = b""
            await asyncio.sleep(0)
        self._say(begun)

    def text(self) -> str:
        """Return the end of the output as one clean line, as a traceback ends with its error; empty without output."""
        said = self._readable(self._kept)
        return said if len(said) <= _TOLD else f"…{said[-_TOLD:]}"

    def _say(self, line: bytes) -> None:
        raised = self._traceback.read(line[:_KEPT])
        if raised:  # the log of its lines may have been cut before this one
            _LOG.error("%s: %s", self._what, self._readable(raised))
        if line.strip() and self._log.takes() and (text := self._readable(line[:_KEPT])):
            self._log.write(logging.INFO, self._what, text)

    def _readable(self, said: bytes) -> str:
        return mask_secrets(clean_text(in_one_line(said.decode(errors="replace"))), self._secrets)
