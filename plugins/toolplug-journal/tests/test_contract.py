"""The journal keeps the contract between providers and hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug.testing.provider_check import check_provider
from toolplug_journal.provider import Journal

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.anyio
@pytest.mark.requirement("I2-9-all-use-it")
@pytest.mark.parametrize("settings", [{}, {"arguments": True}])
async def test_the_journal_keeps_every_rule_of_a_provider(settings: dict[str, object]) -> None:
    await check_provider(
        Journal, settings=settings, calls={"journal_recent": {"limit": 5, "tool": "hello"}}, readme=README
    )
