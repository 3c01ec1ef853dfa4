"""The present use of the quotas of event streams and calls per minute, at this process and the last known elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from time import monotonic

from toolplug.catalog.call import Principal
from toolplug.execution.limits.limiters import RateLimit
from toolplug.host.quotas.settings import RETRY_S, Owner, QuotaName, Quotas, quota_exceeded
from toolplug.runtime.lru import LeastRecentlyUsed

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
        self._streams: Counter[OwnerId] = Counter()
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
    def streams(self) -> Counter[OwnerId]:
        """The open streams at this process."""
        return self._streams

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
            if self._streams[counted] + self._elsewhere[0][counted] >= limit:
                raise quota_exceeded("streams", owner, limit)
        if self._streams[owner_id(tenant, subject)] >= self._streams_per_key:
            raise quota_exceeded("streams_per_key", (tenant, subject), self._streams_per_key)

    @contextmanager
    def stream(self, tenant: str, subject: str) -> Generator[None]:
        """Count one stream inside the block. Raises `QuotaExceeded` on entering."""
        self.check_stream(tenant, subject)
        owners = owner_id(tenant), owner_id(tenant, subject)
        self._streams.update(owners)
        try:
            yield
        finally:
            for owner in owners:
                self._streams[owner] -= 1
                if not self._streams[owner]:
                    # A counter keeps its zeros, one for each caller that ever had a stream.
                    del self._streams[owner]

    def _rate(self, owner: OwnerId, limit: int) -> RateLimit:
        rate = self._calls.get(owner)
        if rate is None:
            rate = RateLimit(limit, _MINUTE_S, "", clock=monotonic)
            self._calls.put(owner, rate)
        rate.resize(limit, _MINUTE_S)
        return rate
