"""A store in the memory of this process, for tests, one-off commands and hosts that keep nothing."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from secrets import token_hex
from typing import Self

from toolplug.errors import StoreConflict, StoreUnavailable
from toolplug.stores.changes import (
    BatchResult,
    Counters,
    Head,
    Request,
    Waiting,
    apply_changes,
    check_count,
    check_key,
    check_keys,
    check_text,
    checked_commit,
    checked_extension,
)
from toolplug.stores.store import KEPT_EVENTS, Change, Event, Events, Missed, Record, Store

_PURGE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Entry:
    head: Head
    value: bytes
    log: deque[Event]


class MemoryStore(Store):
    """A `Store` that keeps its records until it is closed.

    `waiting`: the readers of both, if another store adds this one to itself.

    ```python
    import asyncio

    from toolplug.stores import MemoryStore

    async def main():
        async with MemoryStore() as store:
            await store.commit("order/7", b"paid")
            assert await store.keys("order/") == ["order/7"]

    asyncio.run(main())
    ```
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        kept_events: int = KEPT_EVENTS,
        waiting: Waiting | None = None,
    ) -> None:
        check_count("kept_events", kept_events)
        self.id: str = token_hex(4)
        self.shared: bool = False
        self._clock = clock
        self._kept_events = kept_events
        self._entries: dict[str, _Entry] = {}
        self._counters = Counters(0, 0)
        # No timer: the next change after a second removes what has expired, so that an idle store does nothing.
        self._purge_at = clock() + _PURGE_EVERY_S
        self._waiting = Waiting() if waiting is None else waiting
        self._open = False

    async def read(self, key: str) -> Record | None:
        check_key(key)
        entry = self._live(key)
        if entry is None:
            return None
        head = entry.head
        return Record(value=entry.value, revision=head.revision, expires_at=head.expires_at, position=head.position)

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
        return self._change(checked_commit(key, value, expected=expected, ttl_s=ttl_s, events=events))

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        return self._change(checked_extension(key, events=events, ttl_s=ttl_s)) > 0

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_text(prefix)
        check_text(after)
        check_count("limit", limit)
        self._check_open()
        now = self._clock()
        wanted = (
            key
            for key, entry in self._entries.items()
            if key.startswith(prefix) and key > after and entry.head.alive(now)
        )
        # A page of a large store without sorting all of it; the keys are in no order here.
        return heapq.nsmallest(limit, wanted)

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        check_keys(keys)
        live = {key: self._live(key) for key in keys}
        return {key: 0 if entry is None else entry.head.revision for key, entry in live.items()}

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        check_key(key)
        check_count("limit", limit)

        async def page() -> Events:
            return self._page(key, after, limit)

        return await self._waiting.look(key, wait_s, page)

    def watch(self, prefix: str) -> AsyncGenerator[Change | Missed]:
        check_text(prefix)
        return self._waiting.watch(prefix, self._check_open)

    def now(self) -> float:
        return self._clock()

    async def aclose(self) -> None:
        self._open = False
        self._entries.clear()
        self._waiting.wake_all()

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the memory store is not open")

    def _live(self, key: str) -> _Entry | None:
        self._check_open()
        entry = self._entries.get(key)
        return entry if entry is not None and entry.head.alive(self._clock()) else None

    def _change(self, change: Request) -> int:
        self._check_open()
        now = self._clock()
        settlement = apply_changes([change], self._heads(change.key, now), self._counters, now=now)
        self._write(settlement)
        (answer,) = settlement.answers
        if isinstance(answer, StoreConflict):
            raise answer
        return answer

    def _heads(self, key: str, now: float) -> dict[str, Head]:
        """Return the heads to pass to `apply_changes`: the record's own, and sometimes all that have expired."""
        heads: dict[str, Head] = {}
        if now >= self._purge_at:
            self._purge_at = now + _PURGE_EVERY_S
            heads = {other: entry.head for other, entry in self._entries.items() if not entry.head.alive(now)}
        if key in self._entries:
            heads[key] = self._entries[key].head
        return heads

    def _write(self, settlement: BatchResult) -> None:
        for key in settlement.removed:
            self._entries.pop(key, None)
        for key, head in settlement.heads.items():
            entry = self._entries.get(key) or _Entry(head, b"", deque[Event](maxlen=self._kept_events))
            entry.log.extend(settlement.appended.get(key, ()))
            self._entries[key] = replace(entry, head=head, value=settlement.values.get(key, entry.value))
        self._counters = settlement.counters
        self._waiting.tell(settlement)

    def _page(self, key: str, after: int | None, limit: int) -> Events:
        entry = self._live(key)
        if entry is None:
            return Events(known=False)
        log = entry.log
        if after is None:
            return Events(known=True, entries=tuple(islice(log, limit)))
        # Nothing was dropped yet, so that a reader from before the first event has missed nothing.
        from_the_start = after == entry.head.origin and len(log) == entry.head.appended
        if not (from_the_start or any(event.id == after for event in log)):
            return Events(known=False)
        return Events(known=True, entries=tuple(islice((event for event in log if event.id > after), limit)))
