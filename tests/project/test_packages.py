"""The distributions agree: one version, one licence, types, links and the range of toolplug that they require."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from tests.project.release_page import moving_ranges, replacing_address
from tests.requirement_table import ROOT

PLUGINS = sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))
PROJECTS = [ROOT, *PLUGINS]
TEMPLATES = ROOT / "src" / "toolplug" / "cli" / "provider_package"


def version() -> Version:
    return Version((ROOT / "VERSION").read_text("utf-8").strip())


def settings(project: Path) -> dict[str, Any]:
    return tomllib.loads((project / "pyproject.toml").read_text("utf-8"))


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_a_distribution_has_the_one_version_the_licence_types_and_links(project: Path) -> None:
    read = settings(project)
    metadata, hatch = read["project"], read["tool"]["hatch"]
    assert (metadata["dynamic"][:1], "version" in metadata) == (["version"], False)
    assert (project / hatch["version"]["path"]).resolve() == ROOT / "VERSION"
    assert (metadata["license"].split(" AND ")[0], metadata["license-files"][0]) == ("Apache-2.0", "LICENSE")
    assert (project / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
    assert list((project / "src").glob("*/py.typed"))
    assert set(metadata["urls"]) == {"Documentation", "Source", "Changelog", "Issues"}
    assert "Development Status :: 3 - Alpha" in metadata["classifiers"]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_requires_the_minor_version_that_it_is_released_with(plugin: Path) -> None:
    found = {need.name: need for need in map(Requirement, settings(plugin)["project"]["dependencies"])}
    minor, following = (f"{version().major}.{version().minor + more}" for more in (0, 1))
    assert found["toolplug"].specifier == SpecifierSet(f">={minor},<{following}")


def test_the_server_comes_with_the_console_of_its_own_minor_version() -> None:
    extra = settings(ROOT)["project"]["optional-dependencies"]["server"]
    found = {need.name: need for need in map(Requirement, extra)}
    minor, following = (f"{version().major}.{version().minor + more}" for more in (0, 1))
    assert found["toolplug-console"].specifier == SpecifierSet(f">={minor},<{following}")


@pytest.mark.process
def test_the_release_page_moves_every_range_of_toolplug_to_the_next_minor_version(tmp_path: Path) -> None:
    for project in PROJECTS:
        copy = tmp_path / project.relative_to(ROOT) / "pyproject.toml"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((project / "pyproject.toml").read_bytes())
    subprocess.run(["bash", "-c", moving_ranges()], cwd=tmp_path, check=True)
    moved = [need for project in PROJECTS for need in ranges(tmp_path / project.relative_to(ROOT))]
    following = Version(f"{version().major}.{version().minor + 1}.0")
    assert len(moved) > len(PLUGINS)
    assert [str(need) for need in moved if following not in need.specifier] == []


@pytest.mark.process
def test_the_release_page_gives_every_package_its_address(tmp_path: Path) -> None:
    for project in PROJECTS:
        copy = tmp_path / project.relative_to(ROOT) / "pyproject.toml"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((project / "pyproject.toml").read_bytes())
    subprocess.run(["bash", "-c", "git init --quiet && git add ."], cwd=tmp_path, check=True)
    subprocess.run(["bash", "-c", replacing_address("tools.example.org")], cwd=tmp_path, check=True)
    links = [link for project in PROJECTS for link in links_of(tmp_path / project.relative_to(ROOT))]
    assert len(links) > len(PLUGINS)
    assert [link for link in links if not link.startswith("https://tools.example.org/")] == []


def links_of(project: Path) -> list[str]:
    """Where a package's index says that more is found."""
    return [*settings(project)["project"]["urls"].values()]


def ranges(project: Path) -> list[Requirement]:
    """What a project requires of toolplug and of its plugins, in all of its lists."""
    metadata = settings(project)["project"]
    lists = [metadata.get("dependencies", []), *metadata.get("optional-dependencies", {}).values()]
    found = [Requirement(text) for texts in lists for text in texts]
    return [need for need in found if need.name.startswith("toolplug") and need.specifier]


def test_the_changelog_describes_the_version_and_what_comes_after_it() -> None:
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert [Version(section) for section in sections[1:]] == sorted(map(Version, sections[1:]), reverse=True)
    assert sections[1] == str(version())


def test_a_new_provider_has_the_same_licence() -> None:
    assert (TEMPLATES / "LICENSE.template").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")


def test_the_example_and_the_console_have_the_same_script_and_colours() -> None:
    console, example = ROOT / "plugins/toolplug-console/src/toolplug_console/static", ROOT / "examples" / "data_table"
    for name in ("conversation.js", "palette.css"):
        assert (console / name).read_text("utf-8") == (example / name).read_text("utf-8"), name
