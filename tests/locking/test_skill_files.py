"""Data files of entries in the lock: each change of a skill's files is refused by its name, before it is served."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run, run
from tests.cli.process import toolplug

from toolplug import ConfigError
from toolplug.host.file.configuration import Configuration, read_configuration
from toolplug.locking.files import FilesUnreadable
from toolplug.locking.lock_file import Lock, LockedProvider, read_lock, write_lock
from toolplug.locking.making import list_differences, make_lock
from toolplug.locking.reader import compare_data, with_lock
from toolplug.packages.entry_points import find_installed

__all__ = ["run"]

CONFIGURATION = "store: memory://\nproviders:\n  skills: {enabled: true, folders: [./skills]}\n"
HEAD = "---\nname: tea\ndescription: Make tea.\n---\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration of one skill."""
    _write(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def locked_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with its lock, by which it is served: to lock it and to compare what is compiled takes a second."""
    folder = tmp_path_factory.mktemp("locked")
    _write(folder)
    _lock(folder)
    assert _refusal(folder) == []
    return folder


@pytest.fixture
def locked(locked_once: Path, tmp_path: Path) -> Path:
    """A copy of the folder that is locked."""
    return shutil.copytree(locked_once, tmp_path, dirs_exist_ok=True)


def _write(folder: Path) -> None:
    (folder / "providers.yaml").write_text(CONFIGURATION)
    skill = folder / "skills" / "tea"
    (skill / "references").mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"{HEAD}Boil water.\n")
    (skill / "references" / "cups.md").write_text("A cup.\n")


def _lock(folder: Path) -> None:
    """Write the lock of the configuration, as the command does once it has the tools."""
    configuration = read_configuration(folder / "providers.yaml", {}, find_installed())
    write_lock(folder / "toolplug.lock", make_lock(configuration, folder, {}, {}).lock)
    _release(configuration)


def _release(configuration: Configuration) -> None:
    """End the processes that have described an entry: nothing starts it here."""
    for wanted in configuration.providers.wanted.values():
        wanted.release()


def _refusal(folder: Path) -> list[str]:
    file = folder / "providers.yaml"
    try:
        _release(read_configuration(file, {}, with_lock(file, find_installed())))
    except ConfigError as error:
        return [problem.message for problem in error.problems]
    return []


def _replace_by_link(skill: Path) -> None:
    """Put a link to the same text in place of a file."""
    place = skill / "references" / "cups.md"
    place.rename(skill.parents[1] / "cups.md")
    place.symlink_to(skill.parents[1] / "cups.md")


def _add_skill(skill: Path) -> None:
    other = skill.parent / "coffee"
    other.mkdir()
    (other / "SKILL.md").write_text("---\nname: coffee\ndescription: Make coffee.\n---\nGrind.\n")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda skill: (skill / "SKILL.md").write_text(f"{HEAD}Boil milk.\n"), "tea/SKILL.md has changed"),
    "broken head": (lambda skill: (skill / "SKILL.md").write_text("Boil.\n"), "tea/SKILL.md has changed"),
    "file below": (lambda skill: (skill / "references/cups.md").write_text("Two.\n"), "references/cups.md has changed"),
    "new file": (lambda skill: (skill / "run.sh").write_text("rm -r .\n"), "tea/run.sh is new"),
    "new file below": (lambda skill: (skill / "references/a.md").write_text(""), "tea/references/a.md is new"),
    "removed file": (lambda skill: (skill / "references/cups.md").unlink(), "tea/references/cups.md is gone"),
    "removed skill": (lambda skill: (skill / "SKILL.md").unlink(), "tea/references/cups.md is gone"),
    "link": (_replace_by_link, "tea/references/cups.md has changed"),
    "new link": (lambda skill: (skill / "to").symlink_to("SKILL.md"), "tea/to is new"),
    "pipe": (lambda skill: os.mkfifo(skill / "pipe"), "tea/pipe is new"),
    "hidden file": (lambda skill: (skill / ".evil.md").write_text(""), "tea/.evil.md is new"),
    "file that was hidden": (
        lambda skill: (skill / "references/cups.md").rename(skill / "references/.cups.md"),
        "tea/references/cups.md is gone",
    ),
    "new skill": (_add_skill, "skills/coffee/SKILL.md is new"),
}


@pytest.mark.requirement("I36-lock")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_file_of_a_skill_is_refused_by_its_name(locked: Path, name: str) -> None:
    change, words = CHANGES[name]
    change(locked / "skills" / "tea")
    refusal = _refusal(locked)
    assert any(words in line for line in refusal), refusal


@pytest.mark.requirement("I36-lock")
def test_a_lock_has_the_names_of_all_files_also_of_odd_ones(folder: Path) -> None:
    (folder / "skills/tea/a\nb  \u2028.md").write_text("odd")
    _lock(folder)
    found = read_lock(folder / "toolplug.lock").provider("skills")
    assert found is not None
    assert set(found.data) == {
        "skills/tea/SKILL.md",
        "skills/tea/a\nb  \u2028.md",
        "skills/tea/references/cups.md",
    }
    assert {len(digest) for digest in found.data.values()} == {64}
    assert _refusal(folder) == []


@pytest.mark.requirement("I36-lock")
def test_a_folder_that_is_gone_is_refused_in_words(locked: Path) -> None:
    (locked / "skills").rename(locked / "elsewhere")
    said = _refusal(locked)
    assert ["'./skills' cannot be read" in line for line in said] == [True]


@pytest.mark.parametrize(
    ("bound", "most", "words"),
    [
        ("toolplug_skills.locked.MAX_LOCKED_FILES", 1, "over 1 files"),
        ("toolplug_skills.locked.MAX_LOCKED_BYTES", 10, "over 0 MiB"),
        ("toolplug.packages.loading.MAX_DATA", 100, "over 100 characters"),
    ],
)
def test_more_than_a_lock_takes_is_refused(
    locked: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, words: str
) -> None:
    monkeypatch.setattr(bound, most)
    assert [words in line for line in _refusal(locked)] == [True]


def test_what_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text(
        "store: memory://\nproviders:\n  menu: {enabled: true, type: ./menu.py, file: menu.txt}\n"
    )
    (tmp_path / "menu.py").write_text(CLASS.replace("{config.file: (folder / config.file).read_text()}", "[]"))
    with pytest.raises(FilesUnreadable, match="returned list, not a mapping"):
        _lock(tmp_path)


def test_a_digest_is_compared_whole() -> None:
    before, now = {"a": "0" * 64}, {"a": "0" * 63 + "1"}
    assert [*compare_data(before, now)] == ["a has changed"]
    locks = [Lock(providers=(LockedProvider(key="x", type="x", data=data),)) for data in (before, now)]
    assert [*list_differences(*locks)] == ["providers.x: a has changed"]


@pytest.mark.process
@pytest.mark.requirement("I36-lock")
def test_the_commands_refuse_a_skill_that_has_changed(run: Run, folder: Path) -> None:
    assert run("lock").code == 0
    assert run("check", "--locked").code == 0
    (folder / "skills/tea/SKILL.md").write_text(f"{HEAD}Boil milk.\n")
    refusals = {
        "check": run("check", "--locked"),
        "serve": toolplug("serve", "--locked", folder=folder),  # were it served, this process would be the server
        "doctor": run("doctor"),
    }
    for command, done in refusals.items():
        assert "skills/tea/SKILL.md has changed" in done.out + done.err, (command, done)
        assert done.code != 0 or command == "doctor"
    assert run("lock", "--update", "skills").code == 0
    assert run("check", "--locked").code == 0


CLASS = """
from pathlib import Path

from pydantic import BaseModel

from toolplug import FunctionProvider


class Menu(FunctionProvider):
    class Config(BaseModel):
        file: str

    @classmethod
    def locked_files(cls, config, folder):
        return {config.file: (folder / config.file).read_text()}
"""


@pytest.mark.process
@pytest.mark.requirement("I36-lock")
@pytest.mark.parametrize("process", [False, True])
def test_any_provider_has_data_files_also_in_a_process_of_its_own(tmp_path: Path, process: bool) -> None:
    (tmp_path / "menu.py").write_text(CLASS)
    (tmp_path / "menu.txt").write_text("tea")
    entry = f"{{enabled: true, type: ./menu.py, file: menu.txt, run: {{process: {str(process).lower()}}}}}"
    (tmp_path / "providers.yaml").write_text(f"store: memory://\nproviders:\n  menu: {entry}\n")
    _lock(tmp_path)
    assert _refusal(tmp_path) == []
    (tmp_path / "menu.txt").write_text("coffee")
    assert _refusal(tmp_path) == ["menu.txt has changed"]
    (tmp_path / "menu.txt").unlink()
    [said] = _refusal(tmp_path)
    assert "locked_files() raised FileNotFoundError" in said
