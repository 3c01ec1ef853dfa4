"""The provider keeps the contract between providers and hosts, and its README lists its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolplug.testing.provider_check import check_provider
from toolplug.testing.provider_rules.routes import TenantCaller
from toolplug_web_search.provider import WebSearch
from toolplug_web_search.settings import Settings

README = Path(__file__).parents[1] / "README.md"


async def search(caller: TenantCaller) -> None:
    await caller.call("web_search", query="beavers")


async def is_cached(caller: TenantCaller, written: object) -> bool:
    return "age_s" in (await caller.call("web_search", query="beavers")).output


@pytest.mark.anyio
@pytest.mark.process
@pytest.mark.requirement("I2-9-all-use-it")
async def test_the_provider_keeps_the_contract(web: Any) -> None:
    settings = {"backend": "searxng", "url": web.url}
    await check_provider(
        WebSearch,
        settings=settings,
        calls={"web_search": {"query": "otters"}},
        uncalled=["open_page"],
        isolation=[(search, is_cached)],
        readme=README,
    )


def test_every_setting_stands_in_its_table_with_its_default() -> None:
    for name, field in Settings.model_fields.items():
        table = README.read_text("utf-8").partition("## Settings")[2]
        row = next(line for line in table.splitlines() if line.startswith("| `") and f"`{name}`" in line)
        shown = str(int(field.default)) if isinstance(field.default, float) else str(field.default)
        assert field.default in ((), None) or shown in row
