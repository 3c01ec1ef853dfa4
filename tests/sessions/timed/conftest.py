"""Tests in virtual time, over a store in memory; none leaves a timer behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.faulty_store import FaultyStore
from tests.sessions.fixtures import OpenStore
from tests.sessions.timed.processes import Three, three_processes
from tests.virtual_time import VIRTUAL, VirtualLoop, virtual_clock

from toolplug.stores.memory import MemoryStore


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL


@pytest.fixture
def open_store() -> OpenStore:
    return lambda: MemoryStore(clock=virtual_clock)


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[FaultyStore]:
    """A store that a test may let fail."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with open_store() as inner:
        yield FaultyStore(inner)
    assert loop.timers() == []


@pytest.fixture
async def three() -> AsyncIterator[Three]:
    """Three processes that serve the same sessions."""
    async with three_processes() as processes:
        yield processes
