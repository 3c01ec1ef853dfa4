"""The use of quotas by the other processes that share a store, as of ten seconds ago at most.

Each process writes what its tenants and keys use as one volatile record `~quota/ID`, and reads those of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from types import TracebackType
from typing import Self, TypedDict, cast

import orjson

from toolplug.config.quotas import Owner
from toolplug.errors import StoreError
from toolplug.host.quota_use import QuotaUse
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.processes import Processes
from toolplug.stores.store import VOLATILE, Store

_PREFIX = f"{VOLATILE}quota/"
EXCHANGED_EVERY_S = 4.0
_KEPT_S = 10.0
_LOG = logging.getLogger("toolplug.host")

_Counts = list[tuple[list[str], int]]


class _Kept(TypedDict):
    streams: _Counts
    calls: _Counts


class QuotaPeers:
    """Exchanges the use of quotas with other processes inside `async with`, where several share the store."""

    def __init__(self, store: Store, processes: Processes, use: QuotaUse) -> None:
        self._store = store
        self._joined = processes.joined
        self._use = use
        self._tasks = BackgroundTasks()

    async def __aenter__(self) -> Self:
        if self._joined:
            self._tasks.start(self._exchange(), "toolplug-quotas")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.cancel()

    async def _exchange(self) -> None:
        while True:
            await asyncio.sleep(EXCHANGED_EVERY_S)
            if self._use.is_limited:
                try:
                    await self._write()
                    await self._read()
                except StoreError as failed:
                    _LOG.warning("the use of quotas at other processes is not known now: %s", failed)

    async def _write(self) -> None:
        kept: _Kept = {"streams": _listed(self._use.streams), "calls": _listed(self._use.calls)}
        await self._store.commit(_PREFIX + self._store.id, orjson.dumps(kept), ttl_s=_KEPT_S, to=self._store.id)

    async def _read(self) -> None:
        streams, calls = Counter[Owner](), Counter[Owner]()
        for key in await self._store.keys(_PREFIX):
            record = None if key == _PREFIX + self._store.id else await self._store.read(key)
            if record is not None:
                kept = cast("_Kept", orjson.loads(record.value))
                streams.update({tuple(owner): count for owner, count in kept["streams"]})
                calls.update({tuple(owner): count for owner, count in kept["calls"]})
        self._use.take_elsewhere(streams, calls)


def _listed(counts: Counter[Owner]) -> _Counts:
    return [([*owner], count) for owner, count in counts.items() if count]
