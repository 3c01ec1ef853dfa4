"""Quotas: how much of what all share one tenant, or one key, may take (CONTRACT.md section 5).

A key is a tenant and a subject, so that the tokens of one subject count together. A quota that is not set adds no work.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolplug.catalog.call import Principal
from toolplug.catalog.text import counted
from toolplug.config.units import Size
from toolplug.errors import QuotaExceeded, StoredBytesExceeded
from toolplug.execution.limits import Rate

QuotaName = Literal["sessions", "streams", "servers", "stored_bytes", "calls_per_minute"]
Owner = tuple[str, ...]
"""Who has used something: `(tenant,)`, or `(tenant, subject)`."""

RETRY_S = 60.0
"""When to try again where nobody knows when something is given back."""
_MINUTE_S = 60
_MAX_OWNERS = 10_000


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)


class QuotaLimits(_Part):
    """What one tenant, or one key, may have at once, or begin in a minute. What is not set is not limited."""

    sessions: Annotated[int | None, Field(ge=0, description="live sessions that it created")] = None
    streams: Annotated[int | None, Field(ge=0, description="event streams that are open")] = None
    servers: Annotated[int | None, Field(ge=0, description="MCP servers that were added over HTTP")] = None
    stored_bytes: Annotated[
        Size | None,
        Field(description="in the store: responses, results, saved toolsets, sessions, records of providers"),
    ] = None
    calls_per_minute: Annotated[int | None, Field(ge=0, description="tool calls and responses that begin")] = None


class Quotas(_Part):
    """The quotas of each tenant, and of each key within it; both must admit."""

    tenant: QuotaLimits = QuotaLimits()
    key: QuotaLimits = QuotaLimits()

    def levels(self, quota: QuotaName, tenant: str, subject: str) -> Iterator[tuple[Owner, int]]:
        """Whose use is limited, and to what."""
        for owner, limits in (((tenant,), self.tenant), ((tenant, subject), self.key)):
            limit: int | None = getattr(limits, quota)
            if limit is not None:
                yield owner, limit

    def sets(self, quota: QuotaName) -> bool:
        """Whether some level limits it."""
        return getattr(self.tenant, quota) is not None or getattr(self.key, quota) is not None


NO_QUOTAS = Quotas()


def quota_exceeded(quota: str, owner: Owner, limit: int, retry_s: float = RETRY_S) -> QuotaExceeded:
    """The refusal of more than `limit`; it does not say what others have used."""
    whose = "tenant" if len(owner) == 1 else "key"
    what, suffix, fix = _WORDS[quota]
    kind = StoredBytesExceeded if quota == "stored_bytes" else QuotaExceeded
    return kind(quota, f"the {whose} may have {counted(limit, what)}{suffix}; {fix}", retry_s)


_WORDS = {
    "sessions": ("session", " at once", "end one, or wait until one expires"),
    "streams": ("event stream", " at once", "close one"),
    "streams_per_key": ("event stream", " at once", "close one"),
    "servers": ("MCP server", "", "remove one"),
    "stored_bytes": ("byte", " in the store", "delete something, or wait until something expires"),
    "calls_per_minute": ("call", " in a minute", "call again later"),
}


class QuotaUse:
    """What is used now of the quotas that only this process knows: streams and calls. Lives as long as the host.

    `streams_per_key` holds for every key, whatever `quotas` say.
    """

    def __init__(self, quotas: Quotas, streams_per_key: int) -> None:
        self._streams: Counter[Owner] = Counter()
        self._calls: OrderedDict[Owner, Rate] = OrderedDict()
        self.configure(quotas, streams_per_key)

    def configure(self, quotas: Quotas, streams_per_key: int) -> None:
        """Hold to these from now on; what was counted stays counted."""
        self._quotas = quotas
        self._streams_per_key = streams_per_key
        self._limits_calls = quotas.sets("calls_per_minute")

    async def count_call(self, principal: Principal) -> None:
        """Count one call, unless a level has had as many as it may in the last minute. Raises `QuotaExceeded`."""
        if not self._limits_calls:
            return
        quota: QuotaName = "calls_per_minute"
        rates = [
            (owner, limit, self._rate(owner, limit))
            for owner, limit in self._quotas.levels(quota, principal.tenant, principal.subject)
        ]
        for owner, limit, rate in rates:
            refusal = rate.refusal() if limit else None
            if not limit or refusal is not None:
                raise quota_exceeded(quota, owner, limit, RETRY_S if refusal is None else refusal.retry_after_s)
        for _, _, rate in rates:
            await rate.admit(0.0)

    def check_stream(self, tenant: str, subject: str) -> None:
        """Raise `QuotaExceeded` where no further stream may be opened now."""
        for owner, limit in self._quotas.levels("streams", tenant, subject):
            if self._streams[owner] >= limit:
                raise quota_exceeded("streams", owner, limit)
        if self._streams[tenant, subject] >= self._streams_per_key:
            raise quota_exceeded("streams_per_key", (tenant, subject), self._streams_per_key)

    @contextmanager
    def stream(self, tenant: str, subject: str) -> Generator[None]:
        """Count one stream while it is open. Raises `QuotaExceeded` before it is."""
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
            rate = self._calls[owner] = Rate(limit, _MINUTE_S, "", clock=monotonic)
        rate.resized(limit, _MINUTE_S)
        self._calls.move_to_end(owner)
        if len(self._calls) > _MAX_OWNERS:
            self._calls.popitem(last=False)
        return rate
