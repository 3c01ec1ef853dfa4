"""The present use of the quotas that each process counts for itself: event streams and calls per minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic

from toolplug.catalog.call import Principal
from toolplug.config.quotas import RETRY_S, Owner, QuotaName, Quotas, quota_exceeded
from toolplug.execution.limits import Rate
from toolplug.runtime.lru import LeastRecentlyUsed

_MINUTE_S = 60
_MAX_OWNERS = 10_000


class QuotaUse:
    """The open streams and the calls of the last minute, by tenant and key, as long as the host is entered.

    `streams_per_key` holds for every key, in addition to `quotas`.
    """

    def __init__(self, quotas: Quotas, streams_per_key: int) -> None:
        self._streams: Counter[Owner] = Counter()
        self._calls: LeastRecentlyUsed[Owner, Rate] = LeastRecentlyUsed(_MAX_OWNERS)
        self.configure(quotas, streams_per_key)

    def configure(self, quotas: Quotas, streams_per_key: int) -> None:
        """Apply these limits from now on; the counts stay."""
        self._quotas = quotas
        self._streams_per_key = streams_per_key
        self._limits_calls = quotas.sets("calls_per_minute")

    async def count_call(self, principal: Principal) -> None:
        """Count one call. Raises `QuotaExceeded` if the tenant or key has used up the calls of the last minute."""
        if not self._limits_calls:
            return
        quota: QuotaName = "calls_per_minute"
        levels = self._quotas.levels(quota, principal.tenant, principal.subject)
        rates = [(owner, limit, self._rate(owner, limit)) for owner, limit in levels]
        for owner, limit, rate in rates:
            refusal = rate.refusal() if limit else None
            if not limit or refusal is not None:
                raise quota_exceeded(quota, owner, limit, RETRY_S if refusal is None else refusal.retry_after_s)
        for _, _, rate in rates:
            await rate.admit(0.0)

    def check_stream(self, tenant: str, subject: str) -> None:
        """Raise `QuotaExceeded` if no further stream may be opened now."""
        for owner, limit in self._quotas.levels("streams", tenant, subject):
            if self._streams[owner] >= limit:
                raise quota_exceeded("streams", owner, limit)
        if self._streams[tenant, subject] >= self._streams_per_key:
            raise quota_exceeded("streams_per_key", (tenant, subject), self._streams_per_key)

    @contextmanager
    def stream(self, tenant: str, subject: str) -> Generator[None]:
        """Count one stream inside the block. Raises `QuotaExceeded` on entering."""
        self.check_stream(tenant, subject)
        owners: tuple[Owner, ...] = ((tenant,), (tenant, subject))
        self._streams.update(owners)
        try:
            yield
        finally:
            for owner in owners:
                self._streams[owner] -= 1
                if not self._streams[owner]:
                    del self._streams[owner]

    def _rate(self, owner: Owner, limit: int) -> Rate:
        rate = self._calls.get(owner)
        if rate is None:
            rate = Rate(limit, _MINUTE_S, "", clock=monotonic)
            self._calls.put(owner, rate)
        rate.resized(limit, _MINUTE_S)
        return rate
