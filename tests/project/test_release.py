"""`make release` into a temporary folder by the release page, and the lowest versions that the metadata allows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from textwrap import dedent

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.timeout(600)]

SMOKE = dedent(
    """
    import asyncio
    import toolplug.client, toolplug.http.auth.jwt, toolplug.parts.mcp.sdk.client, toolplug.testing
    import toolplug.parts.responses.openai_backend
    from toolplug import CallContext, Principal, ToolCall, open_host
    from toolplug.http import create_app

    async def main():
        async with open_host({"providers": {"hello": {"enabled": True}}}) as host:
            create_app(host)
            me = Principal(subject="alice", scopes=frozenset({"tools:call"}))
            call = ToolCall("c1", "hello", {"name": "Ada"})
            print((await host.executor_for(me).execute(call, CallContext(principal=me))).status)

    asyncio.run(main())
    """
)


def run(*command: str | Path, folder: Path, code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_next_version_is_released_by_the_release_page_and_installs_from_its_index(tmp_path: Path) -> None:
    clone, out = tmp_path / "clone", tmp_path / "dist"
    run("git", "clone", "--quiet", ROOT, clone, folder=tmp_path)
    now = Version((clone / "VERSION").read_text("utf-8").strip())
    minors = [f"{now.major}.{now.minor + more}" for more in range(3)]
    version = f"{minors[1]}.0"
    (clone / "VERSION").write_text(f"{version}\n")
    release = (sys.executable, ".ci/release.py", "--out", out)
    assert "uncommitted changes" in run(*release, folder=clone, code=1)
    for file in clone.glob("plugins/*/pyproject.toml"):
        old, new = f"toolplug>={minors[0]},<{minors[1]}", f"toolplug>={minors[1]},<{minors[2]}"
        file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
    commit = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-am", "release")
    run(*commit, folder=clone)
    assert "CHANGELOG.md has no section" in run(*release, folder=clone, code=1)
    changelog = clone / "CHANGELOG.md"
    heading = "## [Unreleased]\n"
    changelog.write_text(changelog.read_text("utf-8").replace(heading, f"{heading}\n## [{version}] - 2026-12-01\n"))
    run(*commit, folder=clone)
    assert "Nothing is signed" in run(*release, folder=clone)
    names = {path.name for path in (out / "simple").iterdir() if path.is_dir()}
    assert names == {"toolplug", *(path.name for path in (ROOT / "plugins").iterdir())}
    bill = json.loads((out / f"toolplug-{version}.cdx.json").read_text("utf-8"))
    assert {"pydantic", "uvicorn", "toolplug"} <= {component["name"] for component in bill["components"]}


def test_the_lowest_allowed_versions_of_dependencies_work(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    needs = map(Requirement, [*project["dependencies"], *(need for group in extras.values() for need in group)])
    floors = {need.name: bound.version for need in needs for bound in need.specifier if bound.operator == ">="}
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("".join(f"{name}=={floor}\n" for name, floor in floors.items()))
    venv.create(tmp_path / "venv", with_pip=False)
    scripts = tmp_path / "venv" / "bin"
    pip = (sys.executable, "-m", "pip", "--python", scripts / "python")
    core = f"{ROOT}[{','.join(extras)}]"
    run(*pip, "install", "--quiet", "-c", constraints, core, ROOT / "plugins/toolplug-hello", folder=tmp_path)
    installed = {row["name"]: row["version"] for row in json.loads(run(*pip, "list", "--format=json", folder=tmp_path))}
    assert Version(installed["starlette"]) == Version(floors["starlette"])
    (tmp_path / "providers.yaml").write_text("providers: {hello: {enabled: true}}\n")
    run(scripts / "toolplug", "check", folder=tmp_path)
    run(scripts / "toolplug", "call", "hello", "name=Ada", folder=tmp_path)
    assert run(scripts / "python", "-W", "error", "-c", SMOKE, folder=tmp_path).endswith("success\n")
