"""A desk for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.mcp.servers.scripted import Harness


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    async with Harness() as opened:
        yield opened
