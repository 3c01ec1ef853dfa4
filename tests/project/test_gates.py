"""`make test` runs every gate, and the layers name every folder."""

from __future__ import annotations

import subprocess
import tomllib

import pytest
from tests.requirement_table import ROOT

OUTSIDE_THE_LAYERS = {"testing", "client"}
"""`testing` may import everything and nothing imports it; `client` stands outside the host."""


def planned(target: str) -> str:
    """The commands that `make` would run."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "--no-print-directory", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.process
@pytest.mark.requirement("I2-1-gates")
@pytest.mark.parametrize(
    "command",
    [
        "ruff check",
        "ruff format --check",
        "bin/pyright\n",
        "python -m tests.docs.typed_blocks\n",
        "lint-imports",
        'pytest -m "not judge and not framework and not wire"',
        "pytest -m framework",
        "pytest -m wire",
    ],
)
def test_make_test_runs(command: str) -> None:
    assert command in planned("test")


@pytest.mark.process
@pytest.mark.requirement("I2-1-gates")
@pytest.mark.parametrize(
    "command",
    ["pytest -m judge", "pyright --verifytypes toolplug --ignoreexternal", "coverage run -m pytest", "--fail-under=86"],
)
def test_make_judge_runs(command: str) -> None:
    assert command in planned("judge")


@pytest.mark.requirement("I2-1-gates")
def test_types_are_strict_warnings_are_errors_and_branches_are_counted() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    assert tools["pyright"]["typeCheckingMode"] == "strict"
    assert tools["pytest"]["ini_options"]["filterwarnings"][0] == "error"
    assert tools["coverage"]["run"]["branch"] is True


@pytest.mark.requirement("DESIGN-floors")
def test_every_folder_of_toolplug_is_in_a_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [layer for contract in contracts if contract["type"] == "layers" for layer in contract["layers"]]
    known = {name.strip().removeprefix("toolplug.") for layer in layers for name in layer.split("|")}
    folders = {path.parent.name for path in (ROOT / "src" / "toolplug").glob("*/__init__.py")}
    assert folders - OUTSIDE_THE_LAYERS <= known
