"""A stage, open for the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.execution.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Stage() as opened:
        yield opened
