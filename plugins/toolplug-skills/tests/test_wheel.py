"""The package works from the wheel that is built of it, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import zipfile
from functools import partial
from pathlib import Path

import pytest
from tests.environments import install_wheels

pytestmark = [pytest.mark.judge, pytest.mark.timeout(600)]

PACKAGE = Path(__file__).parent.parent
SKILL = "---\nname: tea\ndescription: Make tea.\n---\nBoil the water first.\n"


@pytest.mark.requirement("I39-adapters-wheels")
def test_the_wheel_serves_a_skill_in_an_environment_of_its_own(tmp_path: Path) -> None:
    scripts, wheel = install_wheels(tmp_path, "server", "", PACKAGE)
    with zipfile.ZipFile(wheel) as archive:
        (points,) = (archive.read(name) for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert points.decode().split() == ["[toolplug.providers]", "skills", "=", "toolplug_skills.provider:Skills"]
    place = tmp_path / "skills/tea"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(SKILL)
    entry = {"skills": {"enabled": True, "folders": ["./skills"]}}
    (tmp_path / "providers.yaml").write_text(json.dumps({"store": "memory://", "providers": entry}))
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=150)
    called = run([scripts / "toolplug", "call", "load_skill", '{"name": "tea"}'])
    assert (called.returncode, called.stdout.strip()) == (0, "Boil the water first."), called.stderr
