"""Tests in virtual time, over a store in memory that a test may let fail."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.discovery.fixtures import service
from tests.faulty_store import FaultyStore
from tests.virtual_time import VIRTUAL, virtual_clock

from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.stores.memory import MemoryStore


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL


@pytest.fixture
async def store() -> AsyncIterator[FaultyStore]:
    async with MemoryStore(clock=virtual_clock) as inner:
        yield FaultyStore(inner)


@pytest.fixture
async def discovery(store: FaultyStore) -> AsyncIterator[Discovery]:
    async with service(store) as discovery:
        yield discovery
