"""The present use of the quotas of event streams and calls per minute, at this process and the last known elsewhere."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b
from time import monotonic
from typing import Self

from toolplug.catalog.call import Principal
from toolplug.cluster.processes import Processes
from toolplug.errors import StoreError
from toolplug.execution.limiters import RateLimit
from toolplug.host.file.settings import HostSettings
from toolplug.host.quotas.settings import RETRY_S, Owner, QuotaName, Quotas, quota_exceeded
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import VOLATILE, Store

_MINUTE_S = 60
_MAX_OWNERS = 10_000

OwnerId = int
"""A hash of an owner, in 64 bits: processes exchange thousands of them every few seconds."""


def owner_id(*owner: str) -> OwnerId:
    """Return the same number in every process that shares the store."""
    return int.from_bytes(blake2b("\0".join(owner).encode(), digest_size=8).digest())


class QuotaUse:
    """The open streams and the calls of the last minute, by tenant and key, as long as the host is entered.

    `streams_per_key` holds for every key, in addition to `quotas`.
    """

    def __init__(self, quotas: Quotas, streams_per_key: int) -> None:
        self.streams: Counter[OwnerId] = Counter()
        self._elsewhere = Counter[OwnerId](), Counter[OwnerId]()
        self._calls: LeastRecentlyUsed[OwnerId, RateLimit] = LeastRecentlyUsed(_MAX_OWNERS)
        self.configure(quotas, streams_per_key)

    def configure(self, quotas: Quotas, streams_per_key: int) -> None:
        """Apply these limits from now on; the counts stay."""
        self._quotas = quotas
        self._streams_per_key = streams_per_key
        self._limits_calls = quotas.sets("calls_per_minute")

    @property
    def is_limited(self) -> bool:
        """True if streams or calls have a quota."""
        return self._limits_calls or self._quotas.sets("streams")

    @property
    def calls(self) -> Counter[OwnerId]:
        """The calls of the last minute at this process, of those who called in it."""
        return Counter({owner: begun for owner, rate in self._calls.items() if (begun := rate.recent_calls)})

    def take_elsewhere(self, streams: Counter[OwnerId], calls: Counter[OwnerId]) -> None:
        """Count these streams and calls of other processes as well, in place of the last ones."""
        self._elsewhere = streams, calls

    async def count_call(self, principal: Principal) -> None:
        """Count one call. Raises `QuotaExceeded` if the tenant or key has used up the calls of the last minute."""
        if not self._limits_calls:
            return
        quota: QuotaName = "calls_per_minute"
        levels = self._quotas.levels(quota, principal.tenant, principal.subject)
        rates: list[tuple[Owner, int, int, RateLimit]] = []
        for owner, limit in levels:
            counted = owner_id(*owner)
            left = limit - self._elsewhere[1][counted]
            rates.append((owner, limit, left, self._rate(counted, max(left, 0))))
        # Every level is asked before one counts: a refused call uses up nothing.
        for owner, limit, left, rate in rates:
            refusal = rate.refusal() if left > 0 else None
            if left <= 0 or refusal is not None:
                raise quota_exceeded(quota, owner, limit, RETRY_S if refusal is None else refusal.retry_after_s)
        for *_, rate in rates:
            # Cannot refuse any more: nothing else has run since the check.
            await rate.admit(0.0)

    def check_stream(self, tenant: str, subject: str) -> None:
        """Raise `QuotaExceeded` if no further stream may be opened now."""
        for owner, limit in self._quotas.levels("streams", tenant, subject):
            counted = owner_id(*owner)
            if self.streams[counted] + self._elsewhere[0][counted] >= limit:
                raise quota_exceeded("streams", owner, limit)
        if self.streams[owner_id(tenant, subject)] >= self._streams_per_key:
            raise quota_exceeded("streams_per_key", (tenant, subject), self._streams_per_key)

    @contextmanager
    def stream(self, tenant: str, subject: str) -> Generator[None]:
        """Count one stream inside the block. Raises `QuotaExceeded` on entering."""
        self.check_stream(tenant, subject)
        owners = owner_id(tenant), owner_id(tenant, subject)
        self.streams.update(owners)
        try:
            yield
        finally:
            for owner in owners:
                self.streams[owner] -= 1
                if not self.streams[owner]:
                    # A counter keeps its zeros, one for each caller that ever had a stream.
                    del self.streams[owner]

    def _rate(self, owner: OwnerId, limit: int) -> RateLimit:
        rate = self._calls.get(owner)
        if rate is None:
            rate = RateLimit(limit, _MINUTE_S, "", clock=monotonic)
            self._calls.put(owner, rate)
        rate.resize(limit, _MINUTE_S)
        return rate


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

    async def __aexit__(self, *_: object) -> None:
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
