"""A store that counts the bytes that each tenant and key keeps in it, used only with the quota `stored_bytes`.

A record counts for the caller of the request that wrote it first. A new record over the quota is refused; an existing
one may grow, so that nothing is cut off while it is written. The owner of each record is stored in a record of its own,
so that a restarted host goes on counting.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple, Self

import orjson

from toolplug.errors import StoreError
from toolplug.execution.accounting import audit_origin
from toolplug.host.quotas.settings import Owner, Quotas, quota_exceeded
from toolplug.stores.store import DelegatingStore, Store, key_pages

_COUNTED = (
    "response/",
    "response-events/",
    "response-healing/",
    "queued/",
    "artifact/",
    "session/",
    "saved-toolset/",
    "provider/",
)
"""Prefixes of the records that callers fill; locks, marks and approvals are small and short-lived."""
_OWNERS = "stored-by/"
_NEVER = float("inf")
_LEAST_TTL_S = 0.001
"""Of an owner that is written so late that its record has just expired; a store takes no time to live of 0."""
_STALE = 1000
"""Entries of renewed records that may wait in the heap of expiries, in addition to as many as there are records."""


class _StoredSize(NamedTuple):
    tenant: str
    subject: str
    size: int
    expires_at: float

    @property
    def owners(self) -> tuple[Owner, Owner]:
        return (self.tenant,), (self.tenant, self.subject)


class CountingStore(DelegatingStore):
    """A `Store` over another one; `commit` also raises `StoredBytesExceeded`. `quotas` returns the present ones."""

    def __init__(self, store: Store, quotas: Callable[[], Quotas]) -> None:
        super().__init__(store)
        self._quotas = quotas
        self._stored: dict[str, _StoredSize] = {}
        self._bytes: Counter[Owner] = Counter()
        self._expiring: list[tuple[float, str]] = []
        # Records whose owner could not be written with them. Few: the next counted commit writes all of them first.
        self._unwritten: set[str] = set()

    async def __aenter__(self) -> Self:
        """Open the store, and read the owners and sizes of its records."""
        await super().__aenter__()
        async for page in key_pages(self, _OWNERS):
            owners: dict[str, _StoredSize] = {}
            for key in page:
                record = await self.read(key)
                if record is not None:
                    name, tenant, subject, size = orjson.loads(record.value)
                    expires_at = _NEVER if record.expires_at is None else record.expires_at
                    owners[name] = _StoredSize(tenant, subject, size, expires_at)
            for name, revision in (await self.revisions(owners)).items():
                if revision:
                    self._put(name, owners[name])
                else:  # a process has deleted the record and ended before it deleted the owner
                    self._unwritten.add(name)
        return self

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        """Append events and renew the time to live, of the owner's record too."""
        done = await self._store.extend(key, events=events, ttl_s=ttl_s, to=to)
        kept = self._stored.get(key)
        if done and kept is not None and ttl_s is not None:
            self._put(key, kept._replace(expires_at=self.now() + ttl_s))
            try:
                await self._store.extend(_owner_key(key), ttl_s=ttl_s)
            except BaseException as error:
                self._unwritten.add(key)
                if not isinstance(error, StoreError):
                    raise
        return done

    async def commit(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int | None = None,
        ttl_s: float | None = None,
        events: Sequence[bytes] = (),
        to: str | None = None,
    ) -> int:
        """Write the record, and count it. Raises `StoredBytesExceeded` for a new one over the quota of its owner.

        That the record is written is the answer, also if its owner is not yet.
        """
        before = self._stored.get(key) if key.startswith(_COUNTED) else None
        after = self._count_change(key, before, value, ttl_s)
        if before is None and after is None:
            return await self._store.commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        for each in [*self._unwritten]:
            await self._write_owner(each)
        self._put(key, after)  # before writing, so that two concurrent commits cannot both use the last room
        try:
            revision = await self._store.commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        except BaseException:
            if self._stored.get(key) is after:  # else a later commit of the same record counts
                self._put(key, before)
            raise
        with suppress(StoreError):  # it is written before the next counted record
            await self._write_owner(key)
        return revision

    async def _write_owner(self, key: str) -> None:
        """Write the owner and the size that count for a record, or delete them. Raises `StoreError`."""
        stored = self._stored.get(key)
        owner, ttl_s = None, None
        if stored is not None:
            owner = orjson.dumps((key, stored.tenant, stored.subject, stored.size))
            if stored.expires_at != _NEVER:
                ttl_s = max(stored.expires_at - self.now(), _LEAST_TTL_S)
        try:
            await self._store.commit(_owner_key(key), owner, ttl_s=ttl_s)
        except BaseException:
            self._unwritten.add(key)
            raise
        self._unwritten.discard(key)

    def _count_change(
        self, key: str, before: _StoredSize | None, value: bytes | None, ttl_s: float | None
    ) -> _StoredSize | None:
        if value is None:
            return None
        expires_at = _NEVER if ttl_s is None else self.now() + ttl_s
        if before is not None and before.expires_at > self.now():
            return before._replace(size=len(value), expires_at=expires_at)
        origin = audit_origin.get() if key.startswith(_COUNTED) else None
        if origin is None:
            return None
        principal = origin.principal
        after = _StoredSize(principal.tenant, principal.subject, len(value), expires_at)
        self._check(after)
        return after

    def _check(self, new: _StoredSize) -> None:
        """Raise `StoredBytesExceeded` if the record does not fit into the quotas of its owner."""
        self._forget_expired()
        for owner, limit in self._quotas().levels("stored_bytes", new.tenant, new.subject):
            if self._bytes[owner] + new.size > limit:
                raise quota_exceeded("stored_bytes", owner, limit)

    def _forget_expired(self) -> None:
        while self._expiring and self._expiring[0][0] <= self.now():
            at, key = heapq.heappop(self._expiring)
            kept = self._stored.get(key)
            # Else the record was renewed, and another entry of the heap has its new time.
            if kept is not None and kept.expires_at == at:
                self._put(key, None)

    def _put(self, key: str, stored: _StoredSize | None) -> None:
        before = self._stored.pop(key, None)
        if before is not None:
            for owner in before.owners:
                self._bytes[owner] -= before.size
                if not self._bytes[owner]:
                    del self._bytes[owner]
        if stored is not None:
            self._stored[key] = stored
            for owner in stored.owners:
                self._bytes[owner] += stored.size
            if stored.expires_at != _NEVER:
                heapq.heappush(self._expiring, (stored.expires_at, key))
                if len(self._expiring) > 2 * len(self._stored) + _STALE:  # each extension has left an entry
                    self._expiring = [
                        (each.expires_at, name) for name, each in self._stored.items() if each.expires_at != _NEVER
                    ]
                    heapq.heapify(self._expiring)


def _owner_key(key: str) -> str:
    return _OWNERS + sha256(key.encode()).hexdigest()
