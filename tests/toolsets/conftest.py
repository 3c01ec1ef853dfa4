"""Agents over toolsets, without a host."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.toolsets.desk import Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with Desk() as opened:
        yield opened
