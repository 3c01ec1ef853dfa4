"""Records and their events as bytes, behind one small protocol.

A record is a value under a key. Each record has one log, a bounded list of events. Events are appended alone, or in the
same transaction as a change of the record, so that a crash leaves both or neither. A log is removed with its record.

A record whose key begins with `~` is volatile: it may be lost with the store's server or with the last process that
uses the store. It is for what has no meaning after that, such as which processes run.

`toolplug.testing.store_laws` is the test suite of every store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType
from typing import Protocol, Self

PAGE = 1000
"""Keys that are read at once."""

KEPT_EVENTS = 256
"""How many events a log keeps where nobody says otherwise; older ones are dropped as new ones come."""
VOLATILE = "~"
"""The first character of the keys of volatile records."""
INLINE_BYTES = 4096
"""The largest value, and the largest total of events, that a `Change` has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record at one moment.

    `revision`: rises by one with each commit of the record. After a record was deleted or has expired, a new one under
    the same key begins above all revisions of the old one, so that a remembered revision never matches it.
    `expires_at`: seconds on the store's clock, `None` for never; an expired record counts as deleted.
    `position`: the end of the record's log at that moment. `Store.events` from here returns all that happened since.

    ```python
    import asyncio

    from toolplug.stores import MemoryStore, Record

    async def main():
        async with MemoryStore() as store:
            await store.commit("order/7", b"paid", ttl_s=60)
            record = await store.read("order/7")
        assert isinstance(record, Record)
        assert record.value == b"paid"

    asyncio.run(main())
    ```
    """

    value: bytes
    revision: int
    expires_at: float | None
    position: int


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a log. `id` rises within a log, may leave gaps, and is never used twice for one key.

    ```python
    import asyncio

    from toolplug.stores import Event, MemoryStore

    async def main():
        async with MemoryStore() as store:
            await store.commit("order/7", b"paid", events=[b"paid by card"])
            found = await store.events("order/7", None)
        assert found.entries == (Event(found.entries[0].id, b"paid by card"),)

    asyncio.run(main())
    ```
    """

    id: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events of a log after a position.

    `known` is false if the position is not one of this log: it is older than the kept events, in the future, or of an
    earlier record of the same key, or there is no record. `entries` is then empty, and the reader must start again from
    `Store.read`. If `known` is true, no entries mean that nothing has happened since. Positions of the logs of other
    keys mean nothing here: a store may use the same numbers for each key.

    ```python
    import asyncio

    from toolplug.stores import Events, MemoryStore

    async def main():
        async with MemoryStore() as store:
            found = await store.events("order/7", None)
        assert found == Events(known=False)

    asyncio.run(main())
    ```
    """

    known: bool
    entries: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A record under a watched prefix has changed, or its log has.

    `revision`: that of the record after the change, 0 if it was removed. `value`: the value that was written; `None` if
    the change wrote none, or one of more than `INLINE_BYTES`. `events`: what was appended; `None` if that is more than
    `INLINE_BYTES` together, or more than the store can send with the value. Several changes of one key may be reported
    as one.

    ```python
    import asyncio

    from toolplug.stores import Change, MemoryStore, Missed

    async def main():
        async with MemoryStore() as store:
            changes = store.watch("order/")
            assert await anext(changes) == Missed()
            revision = await store.commit("order/7", b"paid")
            assert await anext(changes) == Change("order/7", revision, b"paid", ())

    asyncio.run(main())
    ```
    """

    key: str
    revision: int
    value: bytes | None
    events: tuple[Event, ...] | None


@dataclass(frozen=True, slots=True)
class Missed:
    """Changes under a watched prefix may have been missed: read again whatever must be current.

    ```python
    import asyncio

    from toolplug.stores import MemoryStore, Missed

    async def main():
        async with MemoryStore() as store:
            assert await anext(store.watch("order/")) == Missed()  # read the records now: every later change follows

    asyncio.run(main())
    ```
    """


class Store(Protocol):
    """Durable records and their logs.

    A store is used inside `async with`, by the tasks of one event loop. Each method may raise `StoreUnavailable` (busy
    for two seconds, full, read-only, not open), `StoreRefused` (the file is damaged) and `StoreMisused` (an argument
    outside the limits). Keys are text of 1 to 512 bytes of UTF-8 without U+0000 and U+10FFFF; the other limits are in
    `changes.py`. Times to live follow the store's clock, not the loop's.

    `id`: names this store object, at random, among those of all processes that use the same records. `shared`: whether
    other processes may use them at the same time.

    ```python
    import asyncio

    from toolplug.stores import MemoryStore, Store

    async def main():
        async def count_visit(store: Store) -> int:
            record = await store.read("visits")
            visits = 1 if record is None else int(record.value) + 1
            await store.commit("visits", str(visits).encode(), expected=0 if record is None else record.revision)
            return visits

        async with MemoryStore() as store:
            assert [await count_visit(store), await count_visit(store)] == [1, 2]

    asyncio.run(main())
    ```
    """

    id: str
    shared: bool

    async def read(self, key: str) -> Record | None:
        """Return the record, or `None` if there is none or it has expired. All acknowledged changes are visible."""
        ...

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
        """Write the record and append the events, both or neither, and return the record's new revision.

        `value`: `None` deletes the record with its log, and allows no events; deleting a missing record changes nothing
        and returns 0. `expected`: the revision that the record must have, 0 for "no record", `None` for any; otherwise
        `StoreConflict` is raised. `ttl_s`: the time to live from now in seconds, `None` for ever; each commit sets it.
        `to`: the `id` of the only other store object whose readers need to be woken, which spares the others the work;
        `None` for all.

        After the return, the commit survives the death of the process. A cancelled commit is applied whole or not at
        all.
        """
        ...

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        """Append the events to a record's log and set its time to live, both or neither. Return False if there is none.

        Value and revision do not change, so that no commit which expects the revision fails; the position rises.
        `ttl_s`: in seconds from now, which may shorten the life; `None` leaves the expiry unchanged. `to` is that of
        `commit`.

        Durability and cancellation are those of `commit`.
        """
        ...

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys that begin with `prefix` and follow `after`, in code-point order; no expired ones."""
        ...

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        """Return the revision of each record by its key, 0 where there is none; one trip for any number of keys."""
        ...

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        """Return the events of a log after a position, oldest first, at most `limit`.

        `after`: a record's `position` or an event's `id`; `None` is before the oldest kept event. If there is no later
        event, wait up to `wait_s` seconds for one: a change by this process ends the wait at once, one of another
        process within 250 ms; an expiry is noticed at the latest at the end of the wait.
        """
        ...

    def watch(self, prefix: str) -> AsyncGenerator[Change | Missed]:
        """Yield the changes of records whose keys begin with `prefix`, of this process and others, without end.

        The first item is a `Missed`, after which every change follows, so that a reader who reads the records then has
        them all. A `Change` is a hint: it may be late, come twice, and, if another process made it, be replaced by a
        `Missed`, at the latest 250 ms after the commit. A renewal is no change; an expired record is reported when
        the store removes it, if at all. A reader that falls more than 1,000 changes behind gets a `Missed` instead.
        Closing the store raises `StoreUnavailable`.
        """
        ...

    def now(self) -> float:
        """Return the time, in seconds since the epoch, on the clock that times to live follow."""
        ...

    async def aclose(self) -> None:
        """Finish the changes that have begun, end all waits, and release the store. A second call does nothing."""
        ...

    async def __aenter__(self) -> Self:
        """Open the store, in at most two seconds."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class DelegatingStore(Store):
    """A `Store` that passes every operation on to another one; subclasses override some of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.id: str = store.id
        self.shared: bool = store.shared

    async def read(self, key: str) -> Record | None:
        return await self._store.read(key)

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
        return await self._store.commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        return await self._store.extend(key, events=events, ttl_s=ttl_s, to=to)

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        return await self._store.keys(prefix, after=after, limit=limit)

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        return await self._store.revisions(keys)

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        return await self._store.events(key, after, wait_s=wait_s, limit=limit)

    def watch(self, prefix: str) -> AsyncGenerator[Change | Missed]:
        return self._store.watch(prefix)

    def now(self) -> float:
        return self._store.now()

    async def aclose(self) -> None:
        await self._store.aclose()

    async def __aenter__(self) -> Self:
        await self._store.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._store.__aexit__(kind, error, trace)


async def key_pages(store: Store, prefix: str, *, at_once: int = PAGE) -> AsyncGenerator[list[str]]:
    """Yield the keys of live records with a prefix, in code-point order, so many at once. Raises `StoreError`."""
    after = ""
    while page := await store.keys(prefix, after=after, limit=at_once):
        yield page
        after = page[-1]


async def every_key(store: Store, prefix: str) -> AsyncGenerator[str]:
    """Yield the keys of live records with a prefix, in code-point order. Raises `StoreError`."""
    async for page in key_pages(store, prefix):
        for key in page:
            yield key


def name_digest(*parts: str | None) -> str:
    """Return 64 hex digits for a name of several parts, such as tenant and subject, which may hold any character."""
    # `ascii` of the tuple: it quotes each part, so that ("a", "bc") and ("ab", "c") differ.
    return sha256(ascii(parts).encode()).hexdigest()


def tenant_digest(tenant: str) -> str:
    """Return 32 hex digits for the name of a tenant."""
    return sha256(tenant.encode()).hexdigest()[:32]
