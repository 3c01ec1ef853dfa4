"""`store:` names a plugin's store: naming it enables the plugin, and what is wrong with either is one clear problem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package

from toolplug import open_host
from toolplug.errors import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.host.file.packages import known_package
from toolplug.host.inspection import configuration_warnings
from toolplug.packages.entry_points import find_installed
from toolplug.stores.memory import MemoryStore

SHELF = """
    from toolplug.errors import StoreMisused
    from toolplug.hookspecs import hookimpl
    from toolplug.stores.memory import MemoryStore

    def opened(url, *, folder):
        if url.startswith("shelf://lost"):
            raise RuntimeError(url)
        if "wrong" in url:
            raise StoreMisused(f"no shelf is called that: {url}")
        return MemoryStore()

    @hookimpl
    def stores():
        return {"shelf": opened, "shelves": opened}
"""
SECRET = "hunter2"
Write = Callable[[str], Path]
pytestmark = pytest.mark.requirement("C-12-stores")


@pytest.fixture
def shelf(package: Package) -> None:
    package("toolplug-shelf", {"shelf": "shelf_mod", "shelves": "shelf_mod"}, shelf_mod=SHELF)


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_configuration(path, {}, find_installed())
    found = [str(problem).replace(str(path.parent) + "/", "") for problem in caught.value.problems]
    assert SECRET not in "".join(found)
    return found


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text",
    [
        f"store: shelf://me:{SECRET}@here",
        "store: shelves://here",
        "providers: {shelf: {enabled: true}}\nstore: shelves://here",
        "providers: {books: {type: shelf, enabled: true}}\nstore: shelf://here",
    ],
)
@pytest.mark.usefixtures("shelf")
async def test_a_url_of_its_scheme_is_the_store_of_the_host(config: Write, tmp_path: Path, text: str) -> None:
    path = config(text)
    store = read_configuration(path, {}, find_installed()).store
    assert isinstance(store.open(), MemoryStore)
    assert (store.in_memory, store.file, store.state_folder) == (False, None, tmp_path / ".toolplug")
    assert SECRET not in repr(store)
    async with open_host(path) as host:
        (record,) = [
            each for each in host.records() if each.distribution == "toolplug-shelf" and each.state == "active"
        ]
        assert host.plugins.implementers("stores") == (record.key,)


@pytest.mark.usefixtures("shelf")
def test_an_enabled_entry_of_a_store_that_is_not_used_is_a_warning(config: Write) -> None:
    for text, expected in (
        (
            "providers: {shelf: {enabled: true}}",
            "providers.yaml:1:13: providers.shelf: keeps no records: 'store' is a URL of the scheme 'memory'"
            " (write store: shelf://…, which enables it without an entry; or remove the entry)",
        ),
        ("providers: {shelf: {enabled: true}}\nstore: shelf://here", ""),
    ):
        path = config(text)
        found = [*configuration_warnings(read_configuration(path, {}, find_installed()))]
        assert "".join(map(str, found)).replace(f"{path.parent}/", "") == expected


@pytest.mark.usefixtures("shelf")
def test_a_disabled_entry_of_the_plugin_is_a_problem(config: Write) -> None:
    for scheme in ("shelf", "shelves"):
        assert problems(config(f"store: {scheme}://here\nproviders: {{shelf: {{enabled: false}}}}")) == [
            "providers.yaml:1:8: store: the store needs the plugin 'shelf', whose entry is not enabled"
            " (set providers.shelf.enabled to true, or remove the entry)"
        ]


@pytest.mark.usefixtures("shelf")
def test_a_url_that_the_plugin_refuses_is_a_problem_without_the_url(config: Write) -> None:
    assert problems(config(f"store: shelf://me:{SECRET}@wrong")) == [
        "providers.yaml:1:8: store: no shelf is called that: ***"
    ]
    (said,) = problems(config(f"store: shelf://lost:{SECRET}@here"))
    assert said.startswith(
        "providers.yaml:1:8: store: the store of scheme 'shelf' cannot be made from its URL: Runtime"
    )


@pytest.mark.usefixtures("shelf")
def test_an_unknown_scheme_is_given_the_nearest(config: Write) -> None:
    assert problems(config(f"store: sqlit://me:{SECRET}@here")) == [
        "providers.yaml:1:8: store: unknown store scheme 'sqlit' (nearest: 'sqlite')"
    ]
    assert known_package("console", "stores", ["memory"]) == "known: 'memory'"


def test_a_type_that_is_written_as_an_import_is_told_the_file() -> None:
    assert known_package("my.shop:Shop", "packages", ["hello"]) == "a class in a file is written as ./my/shop.py:Shop"


def test_a_package_without_such_a_store_is_a_problem(config: Write, package: Package) -> None:
    package("toolplug-shelf", {"cellar": "shelf_mod"}, shelf_mod=SHELF)
    assert problems(config("store: cellar://here")) == [
        "providers.yaml:1:8: store: the plugin 'cellar' (toolplug-shelf 1.0) has no store of that scheme"
        " (known: 'memory', 'sqlite')"
    ]


def test_an_entry_under_another_key_without_such_a_store_is_a_problem(config: Write, package: Package) -> None:
    package("toolplug-shelf", {"cellar": "shelf_mod"}, shelf_mod=SHELF)
    assert problems(config("store: cellar://here\nproviders: {mine: {type: cellar, enabled: true}}")) == [
        "providers.yaml:1:8: store: the plugin 'cellar' (toolplug-shelf 1.0) has no store of that scheme"
        " (known: 'memory', 'sqlite')"
    ]


@pytest.mark.parametrize("enabled", ["", "providers: {shelf: {enabled: true, required: true}}\n"])
def test_a_broken_package_is_named_with_its_version_and_cause(config: Write, package: Package, enabled: str) -> None:
    package("toolplug-shelf", {"shelf": "shelf_mod"}, shelf_mod="import no_such_module")
    (said,) = problems(config(f"{enabled}store: shelf://me:{SECRET}@here"))
    assert "toolplug-shelf 1.0" in said
    assert "no_such_module" in said


def test_a_tolerated_package_that_is_broken_is_a_problem_of_the_store(config: Write, package: Package) -> None:
    package("toolplug-shelf", {"shelf": "shelf_mod"}, shelf_mod="import no_such_module")
    (said,) = problems(config("providers: {shelf: {enabled: true, required: false}}\nstore: shelf://here"))
    assert said.startswith("providers.yaml:2:8: store: the store needs the plugin 'shelf', which failed: ")


def test_a_hook_that_raises_is_named_with_its_version_and_line(config: Write, package: Package) -> None:
    broken = SHELF.replace("return {", f"raise KeyError('{SECRET}')\n        return {{")
    package("toolplug-shelf", {"shelf": "shelf_mod"}, shelf_mod=broken)
    (said,) = problems(config("store: shelf://here"))
    assert "toolplug-shelf 1.0: stores() raised KeyError at shelf_mod:" in said
