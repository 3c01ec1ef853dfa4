from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sessions.fixtures import LIMITS, ArrangedNeighbours, OpenStore, opened

from toolplug.parts.sessions.service import Sessions
from toolplug.sqlite.store import SqliteStore
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import Store
from toolplug.testing.store_fixtures import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> OpenStore:
    if getattr(request, "param", "memory") == "memory":
        return lambda: MemoryStore(clock=clock)
    return lambda: SqliteStore(tmp_path / "state.db", clock=clock)


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    async with open_store() as store:
        yield store


@pytest.fixture
def neighbours() -> ArrangedNeighbours:
    return ArrangedNeighbours()


@pytest.fixture
async def sessions(store: Store, neighbours: ArrangedNeighbours) -> AsyncIterator[Sessions]:
    async with opened(store, limits=LIMITS, neighbours=neighbours) as sessions:
        yield sessions
