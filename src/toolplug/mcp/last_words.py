"""What a server writes to its standard error: read always, kept only as its last lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from toolplug.catalog.cleaning import cleaned, in_one_line
from toolplug.config.masking import masked
from toolplug.mcp.paced_log import PacedLog

_CHUNK = 64 * 1024
_KEPT = 2048
_TOLD = 400


class LastWords:
    """Reads standard error to its end, so that the server never waits for us, and logs a few lines of it a minute.

    The values in `secrets` are in neither the log nor the text.
    """

    def __init__(self, what: str, log: PacedLog, secrets: Sequence[str]) -> None:
        self._what = what
        self._log = log
        self._secrets = secrets
        self._kept = b""

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Read until the stream ends; a line is logged once its end is there, and a very long one in pieces."""
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
        """Its end as one clean line, since a traceback ends with what was wrong; empty where nothing was written."""
        said = self._readable(self._kept)
        return said if len(said) <= _TOLD else f"…{said[-_TOLD:]}"

    def _say(self, line: bytes) -> None:
        if line.strip() and self._log.takes() and (text := self._readable(line[:_KEPT])):
            self._log.write(logging.INFO, self._what, text)

    def _readable(self, said: bytes) -> str:
        return masked(cleaned(in_one_line(said.decode(errors="replace"))), self._secrets)
