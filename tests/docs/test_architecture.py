"""The page about the architecture names the layers and files that exist."""

from __future__ import annotations

import re
import tomllib

from tests.requirement_table import ROOT

PAGE = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
SRC = ROOT / "src/toolplug"


def test_the_layers_of_the_table_are_those_that_the_build_holds_to() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"].startswith("layers: "))
    held = [name.removeprefix("toolplug.") for layer in layers for name in layer.split(" | ")]
    table = PAGE.partition("## One call")[0]
    assert re.findall(r"^\| `([a-z0-9_]+)` \|", table, re.MULTILINE) == held


def test_every_file_of_the_page_is_there() -> None:
    named = re.findall(r"[a-z_]+(?:/[a-z_]+)*/(?:[a-z_]+\.py)?", PAGE.replace("src/toolplug/", ""))
    assert len(named) > 25
    assert [name for name in named if not (SRC / name).exists()] == []
