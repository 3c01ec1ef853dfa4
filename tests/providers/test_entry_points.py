"""Finding provider packages in their metadata."""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path

import pytest
from tests.providers.fake_distribution import install, provides, run_with

from toolplug.packages.entry_points import Installed, find_installed


def found_in(*folders: Path, running: str = "1.0") -> Installed:
    return find_installed([str(folder) for folder in folders], running=running)


@pytest.mark.requirement("C-1-entry-point-group")
def test_each_entry_point_of_the_group_is_a_type_with_its_distribution_and_version(tmp_path: Path) -> None:
    install(tmp_path, "toolplug-notes", provides(notes="notes_package:Notes", diary="notes_package.diary:Diary"))
    install(tmp_path, "other", "[console_scripts]\nother = other:main\n")
    found = found_in(tmp_path)
    assert found.problems == ()
    assert {kind: [item.package for item in items] for kind, items in found.types.items()} == {
        "diary": ["toolplug-notes 1.0"],
        "notes": ["toolplug-notes 1.0"],
    }
    (notes,) = found.types["notes"]
    assert (notes.type, notes.entry_point.value, notes.excluded_by) == ("notes", "notes_package:Notes", "")


@pytest.mark.process
@pytest.mark.requirement("I2-4-metadata-only", "H-package-not-enabled", "H-package-slow-import")
def test_nothing_is_imported_to_find_what_is_installed(tmp_path: Path) -> None:
    install(tmp_path, "toolplug-loud", provides(loud="loud:Loud"), modules={"loud": "raise SystemExit('imported')"})
    code = """
import json, sys
from toolplug.packages.entry_points import find_installed
found = find_installed()
print(json.dumps([list(found.types), len(found.problems), "loud" in sys.modules]))
"""
    types, problems, imported = run_with(tmp_path, code)
    assert "loud" in types
    assert (problems, imported) == (0, False)


@pytest.mark.requirement("H-package-two-distributions")
def test_two_distributions_of_one_type_are_both_listed(tmp_path: Path) -> None:
    install(tmp_path, "toolplug-b", provides(search="b:B"), version="2.0")
    install(tmp_path, "toolplug-a", provides(search="a:A"))
    assert [item.package for item in found_in(tmp_path).types["search"]] == ["toolplug-a 1.0", "toolplug-b 2.0"]


def test_of_two_copies_of_one_distribution_the_first_on_the_path_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "toolplug-notes", provides(notes="notes:New"), version="2.0")
    install(second, "Toolplug_Notes", provides(notes="notes:Old", gone="notes:Gone"))
    found = found_in(first, second)
    assert {kind: [item.version for item in items] for kind, items in found.types.items()} == {"notes": ["2.0"]}


@pytest.mark.requirement("C-5-state-incompatible")
@pytest.mark.parametrize(
    ("requires", "excluded_by"),
    [
        ((), ""),
        (("toolplug>=0.1", "pydantic<1"), ""),
        (("toolplug<1",), "toolplug<1"),
        (("httpx2", "Toolplug[server] >=2,<3"), "Toolplug[server]<3,>=2"),
        (("toolplug<1; extra == 'old'",), ""),
        (("toolplug<1; python_version < '3'",), ""),
        (("toolplug<1; python_version >= '3'",), 'toolplug<1; python_version >= "3"'),
        (("toolplug-extra<1",), ""),
        (("no requirement at all !", "toolplug<1"), "toolplug<1"),
    ],
)
def test_a_requirement_that_does_not_admit_this_toolplug_is_told(
    tmp_path: Path, requires: tuple[str, ...], excluded_by: str
) -> None:
    install(tmp_path, "toolplug-notes", provides(notes="notes:Notes"), requires=requires)
    (notes,) = found_in(tmp_path, running="1.4.dev0").types["notes"]
    assert notes.excluded_by == excluded_by


@pytest.mark.parametrize("name", ["Notes", "my-notes", "9notes", "notes.v2", "a" * 65])
def test_a_type_that_cannot_be_a_yaml_key_is_reported(tmp_path: Path, name: str) -> None:
    install(tmp_path, "toolplug-notes", provides(**{name: "notes:Notes"}))
    found = found_in(tmp_path)
    (problem,) = found.problems
    assert found.types == {}
    assert f"toolplug-notes 1.0: the entry point {name!r} cannot be used: its name" in str(problem)


def test_a_value_that_is_no_entry_point_is_reported(tmp_path: Path) -> None:
    install(tmp_path, "toolplug-notes", provides(notes="not an entry point", good="notes:Good"))
    found = found_in(tmp_path)
    (problem,) = found.problems
    assert list(found.types) == ["good"]
    assert "'not an entry point' is not written as module:attribute" in str(problem)


def test_metadata_that_cannot_be_read_is_reported_and_costs_nobody_else(tmp_path: Path) -> None:
    install(tmp_path, "toolplug-good", provides(good="good:Good"))
    install(tmp_path, "toolplug-garbage", "")
    install(tmp_path, "toolplug-no-name", provides(nameless="a:B"))
    install(tmp_path, "toolplug-loose", "loose line\n[toolplug.providers]\nno equals sign\n")
    tmp_path.joinpath("toolplug_garbage-1.0.dist-info", "entry_points.txt").write_bytes(b"\xff\xfe[toolplug.providers]")
    tmp_path.joinpath("toolplug_no_name-1.0.dist-info", "METADATA").write_text("nothing of use\n")
    tmp_path.joinpath("empty-1.0.dist-info").mkdir()
    found = found_in(tmp_path)
    assert list(found.types) == ["good"]
    told = {Path(problem.file).name for problem in found.problems if problem.code == "metadata_unreadable"}
    assert {"toolplug_garbage-1.0.dist-info", "toolplug_no_name-1.0.dist-info"} <= told
    assert "empty-1.0.dist-info" not in told
    assert all(problem.hint for problem in found.problems)


def test_a_newer_copy_that_offers_nothing_hides_the_older_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "toolplug-notes", "[console_scripts]\nnotes = notes:main\n", version="2.0")
    install(second, "Toolplug_Notes", provides(notes="notes:Old"))
    assert found_in(first, second).types == {}


def test_a_finder_that_gives_nonsense_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nonsense(Distribution):
        def read_text(self, filename: str) -> str | None:
            raise RuntimeError("no files here")

        def locate_file(self, path: object) -> Path:
            return Path("/nowhere", str(path))

    class Finder(DistributionFinder):
        def find_distributions(self, context: object = None) -> list[Distribution]:
            return [Nonsense()]

        def find_spec(self, *arguments: object) -> None:
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    (problem,) = find_installed([], running="1.0").problems
    assert (problem.code, problem.file) == ("metadata_unreadable", "/nowhere")
    assert "RuntimeError: no files here" in problem.message
