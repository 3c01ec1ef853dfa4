"""The limits of one host that hold for all processes of its store."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from types import TracebackType
from typing import Self
from urllib.parse import quote

from toolplug.cluster.concurrency import ClusterConcurrency
from toolplug.cluster.processes import Processes
from toolplug.cluster.rate import ClusterRate
from toolplug.stores.store import VOLATILE, Store

PREFIX = f"{VOLATILE}limit/"
_MAX_LEVEL = 400
"""Characters of a level in a key; a longer one is hashed."""


class ClusterLimits:
    """The rates and concurrency limits with `scope: cluster`; used inside `async with`.

    Each limit has the record `~limit/LEVEL/rate` or `~limit/LEVEL/calls`. None is dropped before the end.
    """

    def __init__(self, store: Store, processes: Processes) -> None:
        self._store = store
        self._processes = processes
        self._rates: dict[str, ClusterRate] = {}
        self._permits: dict[str, ClusterConcurrency] = {}

    async def __aenter__(self) -> Self:
        self._processes.listen(self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for limit in (*self._rates.values(), *self._permits.values()):
            await limit.aclose()

    def rate(self, level: Sequence[str], what: str, count: int, per_s: int, *, share: bool) -> ClusterRate:
        """Return the rate of this level, changed to these numbers; `share` is what to do without the store."""
        key = f"{_key(level)}/rate"
        if key not in self._rates:
            self._rates[key] = ClusterRate(self._store, self._processes, key, what)
        self._rates[key].resize(count, per_s, share=share)
        return self._rates[key]

    def permits(self, level: Sequence[str], what: str, size: int, queue: int, *, share: bool) -> ClusterConcurrency:
        """Return the concurrency limit of this level, changed to these numbers."""
        key = f"{_key(level)}/calls"
        if key not in self._permits:
            self._permits[key] = ClusterConcurrency(self._store, self._processes, key, what)
        self._permits[key].change(size, queue, share=share)
        return self._permits[key]

    async def _look(self) -> None:
        for limit in (*self._rates.values(), *self._permits.values()):
            await limit.look()


def _key(level: Sequence[str]) -> str:
    name = ",".join(quote(part, safe="") for part in level) or "all"
    return PREFIX + (name if len(name) <= _MAX_LEVEL else sha256(name.encode()).hexdigest())
