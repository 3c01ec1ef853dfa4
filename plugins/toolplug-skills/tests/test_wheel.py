"""The package works from the wheel that is built of it, without its checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.environments import build_wheel

pytestmark = pytest.mark.judge

PACKAGE = Path(__file__).parent.parent
TELLS = "import toolplug_skills.provider as it; print(it.__file__); print(*it.Skills.Config.model_fields)"


@pytest.mark.requirement("I39-adapters-wheels")
def test_the_wheel_holds_the_provider_and_names_it(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, PACKAGE)
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (points,) = site.glob("*.dist-info/entry_points.txt")
    assert points.read_text().split() == ["[toolplug.providers]", "skills", "=", "toolplug_skills.provider:Skills"]
    done = subprocess.run(
        [sys.executable, "-c", TELLS], cwd=site, capture_output=True, text=True, check=True, timeout=150
    )
    file, settings = done.stdout.splitlines()
    assert (Path(file).is_relative_to(site), settings) == (True, "folders")
