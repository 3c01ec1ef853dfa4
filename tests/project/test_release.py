"""`make release` into a temporary folder by the release page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version
from tests.project.release_page import moving_ranges
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.timeout(600)]


def run(*command: str | Path, folder: Path, code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.long(120)
def test_the_next_version_is_released_by_the_release_page_and_installs_from_its_index(tmp_path: Path) -> None:
    clone, out = tmp_path / "clone", tmp_path / "dist"
    run("git", "clone", "--quiet", ROOT, clone, folder=tmp_path)
    now = Version((clone / "VERSION").read_text("utf-8").strip())
    version = f"{now.major}.{now.minor + 1}.0"
    (clone / "VERSION").write_text(f"{version}\n")
    release = (sys.executable, ".ci/release.py", "--out", out)
    assert "uncommitted changes" in run(*release, folder=clone, code=1)
    run("bash", "-c", moving_ranges(), folder=clone)
    commit = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-am", "release")
    run(*commit, folder=clone)
    assert "CHANGELOG.md has no section" in run(*release, folder=clone, code=1)
    changelog = clone / "CHANGELOG.md"
    heading = "## [Unreleased]\n"
    changelog.write_text(changelog.read_text("utf-8").replace(heading, f"{heading}\n## [{version}] - 2026-12-01\n"))
    run(*commit, folder=clone)
    printed = run(*release, folder=clone)
    assert "Nothing is signed" in printed
    assert "https://toolplug.example/, which leads nowhere" in printed
    names = {path.name for path in (out / "simple").iterdir() if path.is_dir()}
    assert names == {"toolplug", *(path.name for path in (ROOT / "plugins").iterdir())}
    bill = json.loads((out / f"toolplug-{version}.cdx.json").read_text("utf-8"))
    assert {"pydantic", "uvicorn", "toolplug"} <= {component["name"] for component in bill["components"]}
