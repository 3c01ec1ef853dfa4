"""The use of quotas by the other processes that share a store, as of ten seconds ago at most.

Each process writes what its tenants and keys use as one volatile record `~use/ID`, and reads those of the others.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from toolplug.cluster.processes import Processes
from toolplug.errors import StoreError
from toolplug.host.file.settings import HostSettings
from toolplug.host.quotas.quota_use import OwnerId, QuotaUse
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import VOLATILE, Store

_PREFIX = f"{VOLATILE}use/"
# With `_KEPT_S` a process may miss one exchange without being forgotten, and one that has died counts for ten seconds
# at most.
EXCHANGED_EVERY_S = 4.0
_KEPT_S = 10.0
_LOG = logging.getLogger("toolplug.host")

_NUMBER = 8
"""Bytes of a number in a record: unsigned, the lowest first."""


class QuotaPeers:
    """Exchanges the use of quotas with other processes inside `async with`, where several share the store."""

    def __init__(self, store: Store, processes: Processes, use: QuotaUse) -> None:
        self._store = store
        self._joined = processes.joined
        self._use = use
        self._tasks = BackgroundTasks()

    async def __aenter__(self) -> Self:
        if self._joined:
            self._tasks.start(self._share_usage(), "toolplug-quotas")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.cancel()

    async def _share_usage(self) -> None:
        while True:
            await asyncio.sleep(EXCHANGED_EVERY_S)
            if self._use.is_limited:
                try:
                    await self._write()
                    await self._read()
                except StoreError as failed:
                    _LOG.warning("the use of quotas at other processes is not known now: %s", failed)

    async def _write(self) -> None:
        value = _pack(self._use.streams, self._use.calls)
        # `to` itself: nobody follows these records, so that no other process needs to be woken.
        await self._store.commit(_PREFIX + self._store.id, value, ttl_s=_KEPT_S, to=self._store.id)

    async def _read(self) -> None:
        streams, calls = Counter[OwnerId](), Counter[OwnerId]()
        for key in await self._store.keys(_PREFIX):
            record = None if key == _PREFIX + self._store.id else await self._store.read(key)
            if record is not None:
                for counts, more in zip((streams, calls), _unpack(record.value), strict=True):
                    counts.update(more)
        self._use.take_elsewhere(streams, calls)


def _pack(streams: Mapping[OwnerId, int], calls: Mapping[OwnerId, int]) -> bytes:
    """Return how many streams there are, then the owners and counts of these, then those of calls."""
    numbers = [len(streams), *streams, *streams.values(), *calls, *calls.values()]
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def _unpack(value: bytes) -> tuple[Mapping[OwnerId, int], Mapping[OwnerId, int]]:
    first, *numbers = struct.unpack(f"<{len(value) // _NUMBER}Q", value)
    streams, calls = numbers[: 2 * first], numbers[2 * first :]
    return _halves(streams), _halves(calls)


def _halves(numbers: list[int]) -> Mapping[OwnerId, int]:
    half = len(numbers) // 2
    return dict(zip(numbers[:half], numbers[half:], strict=True))


@asynccontextmanager
async def open_quota_use(settings: HostSettings, store: Store, processes: Processes) -> AsyncGenerator[QuotaUse]:
    """Yield the use of quotas, which follows that of the other processes of the store."""
    use = QuotaUse(settings.quotas, settings.http.edge.streams_per_key)
    async with QuotaPeers(store, processes, use):
        yield use
