"""The guard keeps the contract between providers and hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug.testing.provider_check import check_provider
from toolplug_guard.provider import Guard

README = Path(__file__).parents[1] / "README.md"

RULE = {"tool": "rm_*", "reason": "not here"}


@pytest.mark.anyio
@pytest.mark.requirement("I2-9-all-use-it")
@pytest.mark.parametrize("settings", [{}, {"mask": ["email"], "rules": [RULE], "patterns": {"x": "y"}, "block": ["x"]}])
async def test_the_guard_keeps_every_rule_of_a_provider(settings: dict[str, object]) -> None:
    await check_provider(Guard, settings=settings, readme=README)
