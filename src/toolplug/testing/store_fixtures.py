"""The fixtures and helpers of the laws of stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

import pytest

from toolplug.stores.store import KEPT_EVENTS, Event, Events, Record, Store


class ManualClock:
    """A clock that returns `now`, in seconds; a test sets it.

    ```python
    import asyncio

    from toolplug.stores import MemoryStore
    from toolplug.testing import ManualClock

    async def main():
        clock = ManualClock()
        async with MemoryStore(clock=clock) as store:
            await store.commit("key", b"value", ttl_s=60)
            clock.now += 61
            assert await store.read("key") is None

    asyncio.run(main())
    ```
    """

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now: float = now

    def __call__(self) -> float:
        return self.now


KEPT = 4
LONG_S = 30.0


class OpenStore(Protocol):
    """Makes a store, which is not open yet."""

    def __call__(self, *, clock: Callable[[], float], kept_events: int = KEPT_EVENTS) -> Store: ...


class StoreFixtures:
    """A clock that tests set, and an open store on it that keeps `KEPT` events per log."""

    pytestmark: pytest.MarkDecorator = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, open_store: OpenStore, clock: ManualClock) -> AsyncIterator[Store]:
        async with open_store(clock=clock, kept_events=KEPT) as store:
            yield store


async def record_of(store: Store, key: str) -> Record:
    """Return the record, which must exist."""
    record = await store.read(key)
    assert record is not None
    return record


async def position_of(store: Store, key: str) -> int:
    """Return the end of the log of a record, which must exist."""
    return (await record_of(store, key)).position


async def new_log(store: Store, key: str = "key") -> int:
    """Commit an empty value, and return the end of its log."""
    await store.commit(key, b"")
    return await position_of(store, key)


def data_of(entries: Iterable[Event]) -> list[bytes]:
    """Return the data of each event."""
    return [event.data for event in entries]


async def park_wait(store: Store, key: str, after: int) -> asyncio.Task[Events]:
    """Start a wait for events; it has read the log once when this returns, since stores read in order."""
    wait = asyncio.create_task(store.events(key, after, wait_s=LONG_S))
    await asyncio.sleep(0)
    # Stores answer in order: with the answer to this read the wait has read the log before it.
    await store.read(key)
    await asyncio.sleep(0)
    return wait


async def wake_all(*waits: asyncio.Task[Events]) -> list[Events]:
    """Return the results of the waits. Raises `TimeoutError` if one does not end."""
    async with asyncio.timeout(LONG_S / 3):
        return await asyncio.gather(*waits)
