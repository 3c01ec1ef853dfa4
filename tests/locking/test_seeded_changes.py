"""Each of a hundred changes of installed packages is refused, in words that name it, before anything is imported."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest
from tests.cli.process import toolplug
from tests.locking.seeded_changes import CHANGES, Change, Folders
from tests.locking.shop import install_all

from toolplug import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.locking.reader import with_lock
from toolplug.packages.entry_points import find_installed

CONFIGURATION = """
store: memory://
providers:
  notes: {enabled: true, type: ./notes.py}
  shop: {enabled: true, type: shop}
"""
NOTES = """
from toolplug import tool


@tool
def count() -> int:
    "Count."
    return 2
"""
QUICK = (*CHANGES[:14], *CHANGES[14::9])
"""Of the quick tests; the judged ones have all."""


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration, its packages and their lock."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "earlier").mkdir()
    install_all(folder / "site")
    (folder / "site" / "old.pth").write_text("# one\n")
    (folder / "site" / "loose.py").write_text("ONE = 1\n")
    (folder / "providers.yaml").write_text(CONFIGURATION)
    (folder / "notes.py").write_text(NOTES)
    made = toolplug("lock", folder=folder, environ=_path(folder))
    assert made.code == 0, made.err
    return folder


_IMPORTED = {"thief", "toolplug_shop", "shelf", "till", "rope", "acme"}


def _path(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{folder / 'earlier'}:{folder / 'site'}", "PYTHONDONTWRITEBYTECODE": "1"}


def _refusal(folder: Path) -> list[str]:
    """What a host says of the folder's packages; it must not have imported any."""
    importlib.invalidate_caches()
    installed = find_installed()
    try:
        read_configuration(folder / "providers.yaml", {}, with_lock(folder / "providers.yaml", installed))
    except ConfigError as error:
        said = [str(problem) for problem in error.problems]
        assert not (any("providers.shop" in line for line in said) and _IMPORTED & sys.modules.keys())
        return said
    finally:
        # Where one was accepted, the next ones are to be judged by themselves.
        for name in [name for name in sys.modules if name.partition(".")[0] in _IMPORTED]:
            del sys.modules[name]
    return []


def _check(locked: Path, folder: Path, change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(locked, folder, dirs_exist_ok=True)
    for name in ("site", "earlier"):
        monkeypatch.syspath_prepend(str(folder / name))
    change.make(Folders(folder / "site", folder / "earlier", folder))
    said = _refusal(folder)
    assert any(all(word in line for word in change.words) for line in said), (change.words, said)


@pytest.mark.process
@pytest.mark.requirement("I36-lock")
@pytest.mark.parametrize("change", QUICK, ids=[change.name for change in QUICK])
def test_a_change_of_a_package_is_refused_in_words(
    locked: Path, tmp_path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(locked, tmp_path, change, monkeypatch)


@pytest.mark.judge
@pytest.mark.parametrize("change", CHANGES, ids=[change.name for change in CHANGES])
def test_each_of_a_hundred_changes_is_refused_in_words(
    locked: Path, tmp_path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(locked, tmp_path, change, monkeypatch)


@pytest.mark.process
@pytest.mark.requirement("I36-lock")
def test_what_has_not_changed_is_served(locked: Path) -> None:
    for arguments in (("check", "--locked"), ("check", "--locked", "--start")):
        done = toolplug(*arguments, folder=locked, environ=_path(locked))
        assert (done.code, done.err) == (0, "")
