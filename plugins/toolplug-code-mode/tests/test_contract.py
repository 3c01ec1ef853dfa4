"""The plugin keeps the contract between providers and hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug.testing.provider_check import check_provider
from toolplug_code_mode.provider import CodeMode

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.anyio
@pytest.mark.requirement("I2-9-all-use-it")
async def test_the_plugin_keeps_every_rule_of_a_provider() -> None:
    calls = {"run_code": {"code": "1 + 1"}, "find_functions": {"query": "run"}}
    await check_provider(CodeMode, calls=calls, readme=README)
