"""What the check of a lock asks, of whom, and in which words; what a search path has beside its distributions."""

from __future__ import annotations

import importlib
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.locking.shop import install_all

from toolplug import ConfigError
from toolplug.host.file.configuration import Configuration, read_configuration
from toolplug.locking import installed
from toolplug.locking.installed import SearchPath, host_path, path_of
from toolplug.locking.lock_file import Lock, LockedProvider, read_lock, write_lock
from toolplug.locking.making import make_lock
from toolplug.locking.reader import lock_of, name_python, with_lock
from toolplug.packages.entry_points import find_installed

pytestmark = pytest.mark.requirement("I36-lock")

ONE = "store: memory://\nproviders:\n  shop: {enabled: true}\n"
TWO = f"{ONE}  second: {{enabled: true, type: shop}}\n"
IMPORTED = ("toolplug_shop", "shelf", "till", "rope", "acme")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the shop, on the path of this process."""
    install_all(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in IMPORTED]:
        del sys.modules[name]


def read(folder: Path, text: str) -> Configuration:
    importlib.invalidate_caches()
    (folder / "providers.yaml").write_text(text)
    return read_configuration(folder / "providers.yaml", {}, find_installed())


def lock(folder: Path, text: str, change: Callable[[Lock], Lock] = lambda made: made) -> None:
    write_lock(folder / "toolplug.lock", change(make_lock(read(folder, text), folder, {}, {}).lock))


def refusal(folder: Path, text: str) -> list[str]:
    importlib.invalidate_caches()
    file = folder / "providers.yaml"
    file.write_text(text)
    try:
        read_configuration(file, {}, with_lock(file, find_installed()))
    except ConfigError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


def change_provider(**fields: object) -> Callable[[Lock], Lock]:
    def change(made: Lock) -> Lock:
        providers = tuple(each.model_copy(update=fields) for each in made.providers)
        return made.model_copy(update={"providers": providers})

    return change


def test_an_entry_that_is_new_is_refused_and_the_locked_one_is_not(folder: Path) -> None:
    lock(folder, ONE)
    assert refusal(folder, ONE) == []
    assert refusal(folder, TWO) == ["providers.second: is not in toolplug.lock"]


def test_of_two_entries_of_a_package_the_first_has_the_difference_and_the_other_one_where_it_is(folder: Path) -> None:
    lock(folder, TWO)
    assert refusal(folder, TWO) == []
    (folder / "site" / "till.py").write_text("TWO = 2\n")
    (folder / "site" / "evil.pth").write_text("# more\n")
    assert refusal(folder, TWO) == [
        "providers.shop: till 1.0: till.py has changed",
        "providers.shop: evil.pth is new; it runs at each start of this Python",
        "providers.second: till 1.0, which it needs, is not as it was locked: see providers.shop",
        "providers.second: this Python, which it needs, is not as it was locked: see providers.shop",
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"python": "envs/x/bin/python"}, "it runs in this Python, and toolplug.lock has envs/x/bin/python"),
        ({"package": "other", "needs": ()}, "its package is toolplug-shop, and toolplug.lock has other"),
        ({"type": "./shop.py"}, "its type is 'shop', and toolplug.lock has './shop.py'"),
    ],
)
def test_another_interpreter_package_or_type_is_named(folder: Path, fields: dict[str, object], said: str) -> None:
    lock(folder, ONE, change_provider(**fields))
    assert f"providers.shop: {said}" in refusal(folder, ONE)


def test_a_package_that_is_gone_is_told_from_one_that_is_not_needed_any_more(folder: Path) -> None:
    lock(folder, ONE, change_provider(needs=("till", "pytest", "never-installed", "shelf", "rope", "acme-tax")))
    assert refusal(folder, ONE) == [
        "providers.shop: never-installed is not installed",
        "providers.shop: pytest is needed no longer",
    ]


def test_the_package_of_a_worker_is_not_looked_for_here(folder: Path) -> None:
    text = "store: memory://\nproviders:\n  far: {enabled: true, type: far_away, run: {worker: true}}\n"
    lock(folder, text)
    assert refusal(folder, text) == []


def test_what_cannot_be_hashed_is_a_problem_of_its_entry(folder: Path) -> None:
    lock(folder, ONE)
    (folder / "site" / "till.py").unlink()
    (folder / "site" / "till.py").mkdir()
    assert refusal(folder, ONE) == [f"providers.shop: {folder / 'site' / 'till.py'} cannot be read: Is a directory"]


def test_compiled_files_that_were_right_are_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock(folder, ONE)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for name in IMPORTED:
        sys.modules.pop(name, None)
    importlib.import_module("till")
    del sys.modules["till"]
    assert refusal(folder, ONE) == []
    assert "till.cpython" in (folder / ".toolplug" / "compiled.json").read_text()


def test_the_lock_of_a_mapping_is_in_the_working_folder(tmp_path: Path) -> None:
    assert (lock_of({}), lock_of(tmp_path / "a.yaml")) == (Path("toolplug.lock"), tmp_path / "toolplug.lock")


def test_an_interpreter_below_the_configuration_has_a_name_that_moves_with_it(tmp_path: Path) -> None:
    assert name_python("", tmp_path) == ""
    assert name_python(f"{tmp_path}/envs/x/bin/python", tmp_path) == "envs/x/bin/python"
    assert name_python("/opt/x/bin/python", tmp_path) == "/opt/x/bin/python"


def test_a_lock_that_is_written_is_read_as_it_was(folder: Path) -> None:
    lock(folder, TWO)
    made = make_lock(read(folder, TWO), folder, {}, {}).lock
    assert read_lock(folder / "toolplug.lock") == made
    assert [each.key for each in made.providers] == ["shop", "second"]
    assert isinstance(made.provider("shop"), LockedProvider)


# The search path


def path_with(*folders: Path, distributions: tuple[Path, ...] = ()) -> SearchPath:
    here = host_path()
    return SearchPath(
        python="",
        version="3.11.7",
        path=tuple(map(str, folders)),
        folders=tuple(map(str, distributions or folders)),
        find=lambda name: None,
        tag=here.tag,
        level=0,
    )


def test_modules_that_no_record_lists_are_found_and_nothing_else(tmp_path: Path) -> None:
    install_all(tmp_path)
    for name in ("loose.py", "package/__init__.py", "__pycache__/x.pyc", "data/text.json", "known.py", "a-b/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [*path_with(tmp_path).loose_modules(["known"])] == ["loose.py", "package"]


def test_each_file_of_a_loose_package_counts_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loose" / "__pycache__").mkdir(parents=True)
    (tmp_path / "loose" / "a.py").write_text("ONE = 1\n")

    def digest() -> str:
        return path_with(tmp_path).loose_modules([])["loose"]

    first = digest()
    (tmp_path / "loose" / "__pycache__" / "a.pyc").write_text("")
    assert digest() == first, "Python writes these itself"
    (tmp_path / "loose" / "a.py").rename(tmp_path / "loose" / "b.py")
    renamed = digest()
    assert renamed != first
    (tmp_path / "loose" / "inner").mkdir()
    (tmp_path / "loose" / "inner" / "c.py").write_text("")
    assert digest() != renamed
    monkeypatch.setattr(installed, "_MAX_LOOSE", 1)
    of_two = digest()
    (tmp_path / "loose" / "inner" / "c.py").write_text("CHANGED = 1\n")
    assert digest() == of_two, "only the first is hashed"
    (tmp_path / "loose" / "inner" / "d.py").write_text("")
    assert digest() != of_two, "but all are counted"


def test_what_comes_before_the_standard_library_is_found_where_an_import_finds_it(tmp_path: Path) -> None:
    for name in ("one/json.py", "two/json.py", "two/asyncio/__init__.py", "std/os.py", "later/pathlib.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "one" / "email").mkdir()
    places = [tmp_path / name for name in ("one", "two", "std", "later")]
    assert path_with(*places).hides_standard() == {
        "json": str(tmp_path / "one" / "json.py"),
        "asyncio": str(tmp_path / "two" / "asyncio"),
    }


def test_folders_of_this_process_are_absolute_and_those_with_distributions_are_known(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder / "empty")
    monkeypatch.setattr(sys, "path", ["", "../site", *sys.path])
    found = host_path()
    assert found.path[:2] == (str(folder / "empty"), str(folder / "site"))
    assert str(folder / "site") in found.folders
    assert str(folder / "empty") not in found.folders
    assert found.markers["python_version"] == "{}.{}".format(*sys.version_info)


@pytest.mark.process
def test_folders_that_links_of_an_environment_add_are_searched(tmp_path: Path) -> None:
    venv.EnvBuilder(symlinks=True).create(tmp_path / "env")
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "edited.py").write_text("")
    (site / "edited.pth").write_text(f"{tmp_path / 'copy'}\n/nowhere\nimport os\n")
    found = path_of(str(tmp_path / "env" / "bin" / "python"))
    spec = found.find("edited")
    assert spec is not None
    assert spec.origin == str(tmp_path / "copy" / "edited.py")


def test_a_folder_of_the_user_without_a_distribution_runs_at_the_start_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.pth").write_text("import os\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "evil.pth" not in host_path().run_at_start()
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path))
    assert "evil.pth" in host_path().run_at_start()
