"""What the laws of a store are tested with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest

from toolplug.stores.store import KEPT_EVENTS, Events, Store


class ManualClock:
    """Returns `now`, in seconds; a test sets it."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now: float = now

    def __call__(self) -> float:
        return self.now


KEPT = 4
LONG_S = 30.0


class OpenStore(Protocol):
    """Makes a store, not yet open."""

    def __call__(self, *, clock: Callable[[], float], kept_events: int = KEPT_EVENTS) -> Store: ...


class StoreFixtures:
    """A clock that the test moves, and an open store that follows it and keeps few events."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, open_store: OpenStore, clock: ManualClock) -> AsyncIterator[Store]:
        async with open_store(clock=clock, kept_events=KEPT) as store:
            yield store


async def position_of(store: Store, key: str) -> int:
    """Return the end of the record's log."""
    record = await store.read(key)
    assert record is not None
    return record.position


async def parked(store: Store, key: str, after: int) -> asyncio.Task[Events]:
    """Begin to wait; the wait has looked once when this returns, as stores read in order."""
    wait = asyncio.create_task(store.events(key, after, wait_s=LONG_S))
    await asyncio.sleep(0)
    await store.read(key)
    await asyncio.sleep(0)
    return wait


async def woken(*waits: asyncio.Task[Events]) -> list[Events]:
    """Return what the waits found; `TimeoutError` where they go on, as if nobody had rung."""
    async with asyncio.timeout(LONG_S / 3):
        return await asyncio.gather(*waits)
