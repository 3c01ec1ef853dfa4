"""The plugin keeps the contract between plugins and hosts, and its README lists its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug.testing.provider_check import check_provider
from toolplug_console.provider import Console
from toolplug_console.settings import Settings

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


@pytest.mark.anyio
async def test_the_plugin_keeps_the_contract() -> None:
    await check_provider(Console)


def test_the_readme_lists_every_setting_with_its_default() -> None:
    table = README.partition("## Settings")[2]
    for name, field in Settings.model_fields.items():
        row = next(line for line in table.splitlines() if line.startswith(f"| `{name}`"))
        assert str(field.default) in row
