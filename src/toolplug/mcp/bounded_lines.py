"""Lines of a stream that somebody else writes, none of them held beyond a bound."""

from __future__ import annotations

import asyncio

_CHUNK = 64 * 1024


class LineTooLong(Exception):
    """A line had no end within the bound; what stands behind its beginning is not read."""


class BoundedLines:
    """The lines of a stream, without their line feeds; at most one line and one chunk are kept."""

    def __init__(self, stream: asyncio.StreamReader, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._kept = bytearray()

    @property
    def ready(self) -> bool:
        """Whether the next line is here already."""
        return b"\n" in self._kept

    async def next(self) -> bytes | None:
        """The next line, None at the end of the stream. Raises `LineTooLong`, and what the stream raises."""
        searched = 0
        while (end := self._kept.find(b"\n", searched)) < 0:
            searched = len(self._kept)
            if searched > self._max_bytes:
                raise LineTooLong
            chunk = await self._stream.read(_CHUNK)
            if not chunk:
                return self._taken(searched) or None
            self._kept += chunk
        if end > self._max_bytes:
            raise LineTooLong
        return self._taken(end)

    def _taken(self, end: int) -> bytes:
        line = bytes(self._kept[:end])
        del self._kept[: end + 1]
        return line
