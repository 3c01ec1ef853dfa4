"""The plugin keeps the contract between providers and hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug.testing.provider_check import check_provider
from toolplug_notify.provider import Notify

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.anyio
@pytest.mark.requirement("I2-9-all-use-it")
async def test_the_plugin_keeps_every_rule_of_a_provider() -> None:
    await check_provider(Notify, settings={"url": "http://127.0.0.1:9/hook"}, readme=README)
