"""A store that takes its time and fails when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Any, Self

import pytest

from toolplug.errors import StoreUnavailable
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import KEPT_EVENTS, Change, DelegatingStore, Events, Missed, Record, Store


class FaultyStore(DelegatingStore):
    """Everything goes to `inner`, which its owner opens and closes, and which outlives this one.

    Each operation takes so many turns of the loop until it is done and so many more until it is answered: `pace` by its
    name. `fails` is asked for each operation by its name and says whether it fails, undone. What is held by name waits
    until it is let go.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.inner = inner
        self.pace: dict[str, tuple[int, int]] = {}
        self.fails: Callable[[str], bool] = lambda _: False
        self.down = False
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, operation: str) -> None:
        """Let operations of this name wait before they are done."""
        self._held[operation] = asyncio.Event()

    @contextmanager
    def holding(self, operation: str) -> Iterator[None]:
        """Let operations of this name wait in the block; `commit reply`: be done, and wait before they are answered."""
        self.hold(operation)
        try:
            yield
        finally:
            self.go(operation)

    def go(self, operation: str) -> None:
        """Let them go on."""
        self._held.pop(operation).set()

    def now(self) -> float:
        return self.inner.now()

    async def read(self, key: str) -> Record | None:
        await self._begin("read")
        record = await self.inner.read(key)
        await self._end("read")
        return record

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
        await self._begin("commit")
        revision = await self.inner.commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        await self._end("commit")
        return revision

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        await self._begin("extend")
        extended = await self.inner.extend(key, events=events, ttl_s=ttl_s, to=to)
        await self._end("extend")
        return extended

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        await self._begin("keys")
        return await self.inner.keys(prefix, after=after, limit=limit)

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        await self._begin("revisions")
        revisions = await self.inner.revisions(keys)
        await self._end("revisions")
        return revisions

    async def watch(self, prefix: str) -> AsyncGenerator[Change | Missed]:
        """Yield what the inner store does; the operation `watch` fails, and begins, once for each item."""
        async with aclosing(self.inner.watch(prefix)) as items:
            async for item in items:
                await self._begin("watch")
                yield item
                await self._end("watch")

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        await self._begin("events")
        events = await self.inner.events(key, after, wait_s=wait_s, limit=limit)
        await self._end("events")
        return events

    async def aclose(self) -> None:
        """Its inner store is its owner's to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _begin(self, operation: str) -> None:
        await _turns(self.pace.get(operation, (0, 0))[0])
        if operation in self._held:
            await self._held[operation].wait()
        if self.down or self.fails(operation):
            raise StoreUnavailable(f"no {operation} now")

    async def _end(self, operation: str) -> None:
        await _turns(self.pace.get(operation, (0, 0))[1])
        reply = self._held.get(f"{operation} reply")
        if reply is not None:
            await reply.wait()


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def evenly(before: int, after: int) -> dict[str, tuple[int, int]]:
    """The same pace for every operation."""
    return dict.fromkeys(("read", "commit", "extend", "keys", "revisions", "events", "watch"), (before, after))


def delay_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have stores of memory list keys as slowly as those of other processes do, so that others come between."""
    keys = MemoryStore.keys

    async def slowly(store: MemoryStore, *given: Any, **named: Any) -> list[str]:
        found = await keys(store, *given, **named)
        await asyncio.sleep(0.02)
        return found

    monkeypatch.setattr(MemoryStore, "keys", slowly)
