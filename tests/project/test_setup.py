"""A fresh clone becomes a working place with one command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.requirement_table import ROOT


@pytest.mark.long(35)
@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.requirement("I2-1-setup")
def test_a_fresh_clone_is_set_up_by_one_command_and_a_second_one_does_nothing(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(["make", "setup"], cwd=clone, check=True)
    again = subprocess.run(["make", "setup"], cwd=clone, check=True, capture_output=True, text=True)
    for command in ("toolplug", "pytest", "ruff", "pyright", "lint-imports"):
        assert (clone / ".venv" / "bin" / command).is_file(), command
    assert "pip install" not in again.stdout


@pytest.mark.judge
@pytest.mark.timeout(1200)
def test_a_fresh_clone_serves_with_what_its_configuration_names_and_without_the_tools_of_developers(
    tmp_path: Path,
) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    made = subprocess.run(["make", ".venv/.serve-ready"], cwd=clone, check=True, capture_output=True, text=True)
    assert "numpy" in made.stdout, "it shows what it fetches"
    commands = clone / ".venv" / "bin"
    valid = subprocess.run([commands / "toolplug", "check"], cwd=clone, check=True, capture_output=True, text=True)
    assert "3 providers enabled" in valid.stdout
    assert not (commands / "pytest").exists()
