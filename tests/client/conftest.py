"""A host that does what a test says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.client.scripted_host import ScriptedHost


@pytest.fixture
async def host() -> AsyncIterator[ScriptedHost]:
    async with ScriptedHost().listening() as listening:
        yield listening
