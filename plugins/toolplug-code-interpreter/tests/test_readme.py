"""What the README says of the settings is so; its examples run with those of every other page."""

from __future__ import annotations

from pathlib import Path

from toolplug_code_interpreter.settings import Settings

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
UNITS = {512 * 1024 * 1024: "512MiB", 256 * 1024 * 1024: "256MiB", 1024 * 1024: "1MiB", None: "toolplug's own"}


def test_every_setting_stands_in_its_table_with_its_default() -> None:
    for name, field in Settings.model_fields.items():
        row = next(line for line in README.splitlines() if line.startswith("| `") and f"`{name}`" in line)
        default = field.default
        assert UNITS.get(default, f"{default:g}" if isinstance(default, float) else str(default)) in row
