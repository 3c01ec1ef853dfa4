"""`toolplug plugins`: what is installed and what is known, and that the list says what the packages are."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.requirement_table import ROOT

from toolplug.cli.plugins import read_known_plugins
from toolplug.packages.entry_points import Installed

SHIPPED = {folder.name: folder for folder in (ROOT / "plugins").iterdir()}


@pytest.mark.requirement("I39-plugins")
def test_installed_and_known_plugins_are_listed_with_what_they_bring_and_reach(
    run: Run, write: Callable[..., object], package: Callable[..., object]
) -> None:
    write(
        "providers: {odd: {type: strange, enabled: true}, guard: {enabled: false}, "
        "hello: {enabled: true, run: {ray: {}}}, host: {enabled: false, run: {ray: {}}}}"
    )
    package("toolplug-strange", {"strange": "strange_mod:It"}, strange_mod="raise RuntimeError('imported')")
    done = run("plugins", "--json")
    listed = {each["package"]: each for each in done.json["plugins"]}
    assert done.code == 0
    assert list(listed) == sorted({*SHIPPED, "toolplug-strange"})
    assert listed["toolplug-strange"] == {
        "package": "toolplug-strange",
        "types": ["strange"],
        "version": "1.0",
        "enabled": True,
        "listed": False,
        "summary": None,
        "capabilities": None,
        "permissions": None,
        "page": None,
    }
    guard = listed["toolplug-guard"]
    assert (guard["types"], guard["capabilities"], guard["listed"]) == (["guard"], ["call hooks"], True)
    assert guard["permissions"]["hooks"] == ["before_call", "change_result"]
    assert (bool(guard["version"]), guard["enabled"], listed["toolplug-remote"]["enabled"]) == (True, False, False)
    engine = listed["toolplug-ray"]
    assert (engine["types"], bool(engine["version"]), engine["enabled"]) == (["ray"], True, True)


@pytest.mark.requirement("I39-plugins")
def test_what_a_package_that_is_not_listed_says_that_it_needs_is_shown(
    run: Run, package: Callable[..., object], tmp_path: Path
) -> None:
    package("toolplug-strange", {"strange": "strange_box.it:It"})
    file = tmp_path / "site-packages" / "strange_box" / "toolplug_permissions.toml"
    file.parent.mkdir(parents=True)
    file.write_text('network = ["api.example.com"]\nsubprocess = true\n', "utf-8")
    (shown,) = [each for each in run("plugins", "--json").json["plugins"] if each["package"] == "toolplug-strange"]
    assert (shown["permissions"]["network"], shown["permissions"]["subprocess"]) == (["api.example.com"], True)
    assert "problem" not in shown
    assert "network: api.example.com; subprocess" in run("plugins").out
    file.write_text("netwrok = []", "utf-8")
    (shown,) = [each for each in run("plugins", "--json").json["plugins"] if each["package"] == "toolplug-strange"]
    assert shown["permissions"] is None
    assert "toolplug_permissions.toml: netwrok" in shown["problem"]
    assert "toolplug_permissions.toml: netwrok" in run("plugins").out


@pytest.mark.requirement("I39-plugins")
def test_the_table_says_what_is_not_installed_and_how_to_install_it(
    run: Run, package: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    package("toolplug-strange", {"strange": "strange_mod:It"}, strange_mod="")
    assert "not listed" in run("plugins").out
    assert "strange" in run("plugins", "--installed").out
    monkeypatch.setattr("toolplug.cli.plugins.find_installed", lambda: Installed(types={}))
    monkeypatch.setattr("toolplug.cli.plugins.find_engines", dict)
    nothing = run("plugins")
    assert "toolplug-guard" in nothing.out
    assert "A plugin without a version is not installed: pip install PACKAGE" in nothing.out
    assert run("plugins", "--installed").out.startswith("no plugin is installed")


@pytest.mark.requirement("I39-plugins")
def test_the_list_agrees_with_the_packages_and_the_hints_and_each_has_its_page() -> None:
    known = {plugin.package: plugin for plugin in read_known_plugins()}
    assert list(known) == sorted(known)
    projects = {name: tomllib.loads((folder / "pyproject.toml").read_text()) for name, folder in SHIPPED.items()}
    points = {name: each["project"]["entry-points"] for name, each in projects.items()}
    engines = {name: sorted(each["toolplug.engines"]) for name, each in points.items() if "toolplug.engines" in each}
    types = {name: sorted(each["toolplug.providers"]) for name, each in points.items() if name not in engines}
    assert {name: sorted(known[name].types) for name in SHIPPED} == {**types, **engines}
    hints = tomllib.loads(files("toolplug.host.file").joinpath("known_packages.toml").read_text("utf-8"))["packages"]
    assert {kind: name for name in types for kind in known[name].types} == hints
    pages = [plugin.page for plugin in known.values() if "://" not in plugin.page]
    assert [page for page in pages if not (ROOT / "docs" / page).is_file()] == []
