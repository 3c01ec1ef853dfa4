"""Quotas: limits on what one tenant, or one key, uses of shared resources (docs/reference/http.md).

A key is a tenant and a subject, so the tokens of one subject count together. A quota that is not set costs no work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from toolplug.config.units import FileMapping, Size
from toolplug.errors import QuotaExceeded, StoredBytesExceeded

QuotaName = Literal["sessions", "streams", "servers", "stored_bytes", "calls_per_minute"]
Owner = tuple[str, ...]
"""The user of a resource: `(tenant,)` or `(tenant, subject)`."""

RETRY_S = 60.0
"""Seconds after which to try again, if it is unknown when a resource becomes free."""


class QuotaLimits(FileMapping):
    """What one tenant, or one key, may have at once, or begin in a minute. What is not set is not limited."""

    sessions: Annotated[int | None, Field(ge=0, description="live sessions that it created")] = None
    streams: Annotated[int | None, Field(ge=0, description="event streams that are open")] = None
    servers: Annotated[int | None, Field(ge=0, description="MCP servers that were added over HTTP")] = None
    stored_bytes: Annotated[
        Size | None,
        Field(description="in the store: responses, results, saved toolsets, sessions, records of providers"),
    ] = None
    calls_per_minute: Annotated[int | None, Field(ge=0, description="tool calls and responses that begin")] = None


class Quotas(FileMapping):
    """The quotas of each tenant, and of each key within it; both must admit."""

    tenant: QuotaLimits = QuotaLimits()
    key: QuotaLimits = QuotaLimits()

    def levels(self, quota: QuotaName, tenant: str, subject: str) -> Iterator[tuple[Owner, int]]:
        """Yield the tenant and the key, each with its limit; those without a limit are left out."""
        for owner, limits in (((tenant,), self.tenant), ((tenant, subject), self.key)):
            limit: int | None = getattr(limits, quota)
            if limit is not None:
                yield owner, limit

    def sets(self, quota: QuotaName) -> bool:
        """Return whether the tenant or the key has a limit."""
        return getattr(self.tenant, quota) is not None or getattr(self.key, quota) is not None


NO_QUOTAS = Quotas()


def quota_exceeded(quota: str, owner: Owner, limit: int, retry_s: float = RETRY_S) -> QuotaExceeded:
    """Return the error for a use over `limit`; its text does not reveal the use of others."""
    whose = "tenant" if len(owner) == 1 else "key"
    what, suffix, fix = _WORDS[quota]
    kind = StoredBytesExceeded if quota == "stored_bytes" else QuotaExceeded
    return kind(quota, f"the {whose} may have {limit} {what}{'' if limit == 1 else 's'}{suffix}; {fix}", retry_s)


_WORDS = {
    "sessions": ("session", " at once", "end one, or wait until one expires"),
    "streams": ("event stream", " at once", "close one"),
    "streams_per_key": ("event stream", " at once", "close one"),
    "body_memory": ("byte", " of unfinished request bodies at once", "send the body again when others have ended"),
    "servers": ("MCP server", "", "remove one"),
    "stored_bytes": ("byte", " in the store", "delete something, or wait until something expires"),
    "calls_per_minute": ("call", " in a minute", "call again later"),
}
