"""`from: KIND:ADDRESS` of a toolset names a plugin's source: what is wrong with either is one clear problem."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package

from toolplug import open_host
from toolplug.errors import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed

SHELF = """
    from toolplug import FunctionProvider

    class Shelf(FunctionProvider):
        def toolset_sources(self):
            return {"shelf": None}

        @staticmethod
        def check_toolset_address(address, kind):
            if address == "broken":
                raise RuntimeError("broken")
            if address != "fiction":
                raise ValueError(f"{kind}: should be followed by fiction, not {address}")
"""
BOOK = """
    from toolplug import tool

    @tool
    def turn() -> str:
        '''Turn a page.'''
        return ""
"""
Write = Callable[[str], Path]
pytestmark = pytest.mark.requirement("I17-5-check")


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_configuration(path, {}, find_installed())
    return [str(problem).replace(str(path.parent) + "/", "") for problem in caught.value.problems]


@pytest.fixture
def shelf(package: Package) -> None:
    package("toolplug-shelf", {"shelf": "shelf_mod:Shelf"}, shelf_mod=SHELF)


@pytest.mark.usefixtures("shelf")
def test_addresses_are_checked_when_the_configuration_is_read(config: Write) -> None:
    entries = [f"  {name[0]}: {{prefix: {name[0]}, from: 'shelf:{name}'}}" for name in ("fiction", "poetry", "drama")]
    assert problems(config("\n".join(["toolsets:", *entries]))) == [
        f"providers.yaml:{line}:24: toolsets.{name[0]}.from: shelf: should be followed by fiction, not {name}"
        for line, name in ((3, "poetry"), (4, "drama"))
    ]
    named = config("toolsets: {a: {prefix: a, from: 'shelf:fiction'}}")
    assert read_configuration(named, {}, find_installed()).providers.wanted["shelf"].build is not None


@pytest.mark.usefixtures("shelf")
def test_a_check_that_raises_something_else_is_a_problem_of_its_package(config: Write) -> None:
    assert problems(config("toolsets: {a: {prefix: a, from: 'shelf:broken'}}")) == [
        "providers.yaml:1:33: toolsets.a.from: toolplug-shelf 1.0: check_toolset_address() raised RuntimeError at"
        " shelf_mod:11 (update toolplug-shelf)"
    ]


def test_a_plugin_that_is_no_source_is_a_problem(config: Write, package: Package) -> None:
    package("toolplug-book", {"book": "book_mod"}, book_mod=BOOK)
    assert problems(config("toolsets: {a: {prefix: a, from: 'book:1'}}")) == [
        "providers.yaml:1:33: toolsets.a.from: the plugin 'book' (toolplug-book 1.0) is no source of toolsets"
        " (write from: provider:KEY for the tools of an entry of type book)"
    ]


@pytest.mark.usefixtures("shelf")
def test_an_unknown_source_is_given_the_nearest(config: Write) -> None:
    (said,) = problems(config("toolsets: {a: {prefix: a, from: 'shelve:fiction'}}"))
    assert "unknown source 'shelve'" in said
    assert said.endswith("(nearest: 'shelf')")


LOST = """
    import asyncio
    from contextlib import asynccontextmanager
    from toolplug import FunctionProvider, ToolsetSource

    OPENED = []

    class Lost(ToolsetSource):
        reads = 0

        def tools(self):
            self.reads += 1
            if self.reads > 1:
                raise ConnectionError("lost")
            return [{"name": "ping", "description": "Answer.", "inputSchema": {"type": "object"}}]

        def hosts(self, tool):
            return ()

        def problem(self):
            return None

        async def execute(self, call, context):
            raise NotImplementedError

        def on_change(self, changed):
            asyncio.get_running_loop().call_soon(changed)

    class Shelf(FunctionProvider):
        def toolset_sources(self):
            @asynccontextmanager
            async def opens(link):
                OPENED.append(link)
                if len(OPENED) in (3, 4):
                    raise ConnectionError("away")
                yield Lost()

            return {"shelf": opens}
"""


@pytest.mark.anyio
async def test_a_source_that_was_open_is_opened_again_soon_however_often_it_was_lost(
    config: Write, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []
    many = asyncio.Event()

    def pause_after(count: int, *_: float) -> float:
        failures.append(count)
        if len(failures) == 6:
            many.set()
        return 0.0

    monkeypatch.setattr("toolplug.host.toolsets.sources.pause_after", pause_after)
    package("toolplug-shelf", {"shelf": "shelf_mod:Shelf"}, shelf_mod=LOST)
    file = config("providers: {shelf: {enabled: true}}\ntoolsets: {a: {prefix: a, from: 'shelf:fiction'}}")
    async with open_host(file, environ={}), asyncio.timeout(30):
        await many.wait()
    assert failures[:6] == [1, 1, 2, 3, 1, 1]
