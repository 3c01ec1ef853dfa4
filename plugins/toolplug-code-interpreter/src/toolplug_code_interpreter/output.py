"""What a call writes to stdout and stderr: read as it comes, up to a limit for both."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

_PIECE = 64 * 1024


class Output:
    """Reads two pipes. Over the limit it reads on and drops, so that the code comes to where it can be stopped."""

    def __init__(self, stdout: int, stderr: int, limit: int, over: Callable[[], None]) -> None:
        self._files = (stdout, stderr)
        self._parts = (bytearray(), bytearray())
        self._left = limit
        self._over = over

    @property
    def texts(self) -> tuple[str, str]:
        """What was written to stdout and to stderr."""
        return self._parts[0].decode("utf-8", "replace"), self._parts[1].decode("utf-8", "replace")

    @property
    def left(self) -> int:
        """The bytes until the limit."""
        return self._left

    @contextmanager
    def reading(self) -> Generator[None]:
        """Read as long as the context lasts."""
        loop = asyncio.get_running_loop()
        for which, file in enumerate(self._files):
            loop.add_reader(file, self._read, which)
        try:
            yield
        finally:
            for file in self._files:
                loop.remove_reader(file)

    def drain(self) -> None:
        """Read what is in the pipes; nothing writes to them now."""
        for which in range(len(self._files)):
            while self._read(which):
                pass

    def _read(self, which: int) -> bool:
        try:
            piece = os.read(self._files[which], _PIECE)
        except (BlockingIOError, InterruptedError):
            return False
        if not piece:
            asyncio.get_running_loop().remove_reader(self._files[which])
            return False
        self._parts[which].extend(piece[: self._left])
        if len(piece) > self._left:
            self._over()
        self._left = max(self._left - len(piece), 0)
        return True
