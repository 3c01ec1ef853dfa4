"""A desk for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.mcp.servers.scripted import Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with Desk() as opened:
        yield opened
