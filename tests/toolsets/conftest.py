"""Agents over toolsets, without a host."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.toolsets.harness import Harness


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    async with Harness() as opened:
        yield opened
