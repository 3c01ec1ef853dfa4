"""The base of stores that add something to another one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from types import TracebackType
from typing import Self

from toolplug.stores.store import KEPT_EVENTS, Change, Events, Missed, Record, Store


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
