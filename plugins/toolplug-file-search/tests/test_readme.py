"""What the README says of the settings is so; its examples run with those of every other page."""

from __future__ import annotations

from pathlib import Path

from toolplug_file_search.settings import Settings

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_every_setting_stands_in_its_table_with_its_default() -> None:
    for name, field in Settings.model_fields.items():
        row = next(line for line in README.splitlines() if line.startswith("| `") and f"`{name}`" in line.split("|")[1])
        default = field.default
        shown = "none" if default in ((), None, "") else default if isinstance(default, str) else str(int(default))
        assert shown in row
