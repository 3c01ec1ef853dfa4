"""Request bodies that have not been read whole: counted by key and in all, and kept in files above 64 KiB.

A client may send a body as slowly as `http.edge.body_bytes_per_s` allows, over as many connections as one address may
have. Starlette's `request.body()` would keep them all in memory.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from errno import ENOSPC
from time import monotonic
from typing import IO, Self, TypeVar, cast

from toolplug.host.file.settings import EdgeSettings
from toolplug.host.quotas.settings import Owner, quota_exceeded
from toolplug.http.errors import HttpProblem
from toolplug.runtime.threads import begun_in_own_thread

DEFAULT_BODY_MEMORY = EdgeSettings().body_memory
SPOOLED_OVER = 64 * 1024
"""Bytes of one body that stay in memory; what comes later goes to a temporary file, that many bytes at a time."""
_WRITERS = 4
_KEYS = 4
"""Keys that together may have all; of one, so much is in memory at the worst, since uploads are kept by Starlette."""
_RETRY_S = 1.0
_NO_FILES_S = 60.0

T = TypeVar("T")

_LOG = logging.getLogger("toolplug.http")


class BodyMemory:
    """The unfinished bodies of one application. `limit` returns the bytes that they may have in all, now.

    One key may have a quarter of them.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._bytes = 0
        self._by_key: Counter[Owner] = Counter()
        self._spools_at = 0.0
        self.writers: asyncio.Semaphore = asyncio.Semaphore(_WRITERS)

    @property
    def spools(self) -> bool:
        """Whether long bodies go to files: not for a minute after one could not be written."""
        return monotonic() >= self._spools_at

    def no_file(self, why: OSError) -> None:
        """Keep bodies in memory for a minute, where they are counted all the same; so a missing disk is no error."""
        self._spools_at = monotonic() + _NO_FILES_S
        _LOG.warning("request bodies stay in memory, since no temporary file can be written: %s", why)

    def take(self, key: Owner, size: int) -> None:
        """Count bytes that have arrived. Raises `QuotaExceeded` or `HttpProblem` if there are too many."""
        limit = self._limit()
        share = limit // _KEYS
        if self._by_key[key] + size > share:
            raise quota_exceeded("body_memory", key, share, _RETRY_S)
        if self._bytes + size > limit:
            message = f"{limit} bytes of unfinished request bodies wait here (http.edge.body_memory); send it again"
            raise HttpProblem(503, "body_memory_full", message, headers={"Retry-After": f"{_RETRY_S:g}"})
        self._bytes += size
        self._by_key[key] += size

    def give_back(self, key: Owner, size: int) -> None:
        """Count these bytes no more."""
        self._bytes -= size
        self._by_key[key] -= size
        if not self._by_key[key]:
            del self._by_key[key]


class UnfinishedBody:
    """One body while it is read, inside `with`; its bytes count until the end of the block."""

    def __init__(self, memory: BodyMemory, key: Owner) -> None:
        self._memory = memory
        self._key = key
        self._counted = 0
        self._chunks: list[bytes] = []
        self._in_memory = 0
        self._written = 0
        self._file: IO[bytes] | None = None
        self._work: Future[object] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        if self._work is not None:
            self._work.add_done_callback(self._close)  # a cancelled request leaves a thread that still writes

    def count(self, size: int) -> None:
        """Count bytes that are kept elsewhere. Raises `QuotaExceeded` and `HttpProblem` if there are too many."""
        self._memory.take(self._key, size)
        self._counted += size

    def release(self) -> None:
        """Count none of its bytes any longer."""
        self._memory.give_back(self._key, self._counted)
        self._counted = 0

    async def add(self, chunk: bytes) -> None:
        """Take the next bytes. Raises `QuotaExceeded` and `HttpProblem` if there are too many."""
        self.count(len(chunk))
        self._chunks.append(chunk)
        self._in_memory += len(chunk)
        if self._in_memory > SPOOLED_OVER and self._memory.spools:
            await self._in_thread(self._write)

    async def content(self) -> bytes:
        return b"".join(self._chunks) if not self._written else await self._in_thread(self._read)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        async with self._memory.writers:
            work = begun_in_own_thread(function, name="toolplug-bodies")
            self._work = cast("Future[object]", work)
            return await asyncio.wrap_future(work)

    def _write(self) -> None:
        """Move the chunks to the file, if it can be written whole."""
        piece = b"".join(self._chunks)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by `_close`
            if self._file.write(piece) < len(piece):
                raise OSError(ENOSPC, "the disk is full")
        except OSError as error:
            self._memory.no_file(error)
            return
        self._written += len(piece)
        self._chunks, self._in_memory = [], 0

    def _read(self) -> bytes:
        assert self._file is not None, "something was written"
        self._file.seek(0)
        return b"".join([self._file.read(self._written), *self._chunks])

    def _close(self, _: Future[object]) -> None:
        if self._file is not None:
            self._file.close()
