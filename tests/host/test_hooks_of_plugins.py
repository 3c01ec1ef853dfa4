"""Plugins of plugins: hooks that a plugin or the host's code specifies, and that others implement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tests.host.conftest import Package

from toolplug import Principal, ToolCall, hookspec, open_host
from toolplug.errors import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed

pytestmark = pytest.mark.anyio
Write = Callable[[str], Path]

PAPER = """
    from toolplug import FunctionProvider, hookspec, tool

    @hookspec
    def headlines(day, language):
        "Return headlines."

    class Paper(FunctionProvider):
        async def start(self, site):
            self.site = site

        @tool
        async def read_paper(self, day: str) -> list[str]:
            "Read the paper."
            found = self.site.plugins.hook.headlines(day=day, language="en")
            return sorted(line for lines in found for line in lines)
"""
SPORT = """
    from toolplug import hookimpl

    @hookimpl
    def headlines(day):
        return [f"sport on {day}"]
"""
WEATHER = """
    from toolplug import FunctionProvider, hookimpl

    class Weather(FunctionProvider):
        @hookimpl(specname="headlines")
        def rain(self, language, day):
            return [f"rain on {day} ({language})"]
"""
ALL = "providers: {sport: {enabled: true}, weather: {enabled: true}, paper: {enabled: true}}"


@pytest.fixture
def papers(package: Package) -> None:
    package("acme-paper", {"paper": "paper_mod:Paper"}, paper_mod=PAPER)
    package("acme-sport", {"sport": "sport_mod"}, sport_mod=SPORT)
    package("acme-weather", {"weather": "weather_mod:Weather"}, weather_mod=WEATHER)


def problem_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_configuration(path, {}, find_installed())
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.usefixtures("papers")
async def test_a_plugin_calls_the_implementations_of_the_hook_that_it_specifies(config: Write) -> None:
    async with open_host(config(ALL)) as host:
        tools = host.executor_for(Principal(scopes=frozenset({"tools:call"})))
        answer = await tools.execute(ToolCall("1", "read_paper", {"day": "Monday"}))
        assert answer.structured == ["rain on Monday (en)", "sport on Monday"]
        assert host.plugins.implementers("headlines") == ("sport", "weather")
        config(ALL.replace("sport: {enabled: true}", "sport: {enabled: false}"))
        await host.reload(by=Principal("op"))
        assert host.plugins.hook.headlines(day="Monday", language="en") == [["rain on Monday (en)"]]


@pytest.mark.usefixtures("papers")
async def test_the_hosts_own_code_may_specify_a_hook(config: Write) -> None:
    specs = ModuleType("specs")

    @hookspec
    def headlines(day: str, language: str) -> None: ...

    vars(specs)["headlines"] = headlines
    host = open_host(config("providers: {sport: {enabled: true}}"))
    host.plugins.add_hookspecs(specs)
    host.plugins.add_hookspecs(specs)
    for _ in range(2):
        async with host:
            assert host.plugins.hook.headlines(day="Monday", language="en") == [["sport on Monday"]]


@pytest.mark.usefixtures("papers")
def test_without_the_plugin_that_specifies_it_the_mark_is_a_problem(config: Write) -> None:
    said = problem_of(config("providers: {sport: {enabled: true}}"))
    assert "acme-sport 1.0 (sport): sport_mod.headlines is marked @hookimpl and is no hook" in said


def test_an_optional_implementation_needs_no_plugin_that_specifies_it(config: Write, package: Package) -> None:
    package("acme-sport", {"sport": "sport_mod"}, sport_mod=SPORT.replace("@hookimpl", "@hookimpl(optionalhook=True)"))
    read_configuration(config("providers: {sport: {enabled: true}}"), {}, find_installed())


@pytest.mark.parametrize("mark", ["@hookimpl", "@hookimpl(optionalhook=True)"])
def test_an_argument_that_the_hook_does_not_have_is_named(config: Write, package: Package, mark: str) -> None:
    package("acme-paper", {"paper": "paper_mod:Paper"}, paper_mod=PAPER)
    source = SPORT.replace("@hookimpl", mark).replace("(day)", "(day, team)")
    package("acme-sport", {"sport": "sport_mod"}, sport_mod=source)
    said = problem_of(config("providers: {sport: {enabled: true, required: true}, paper: {enabled: true}}"))
    assert "acme-sport 1.0 (sport): sport_mod.headlines takes 'team'" in said
    assert "the arguments of this hook are day, language (ask the author of acme-sport to change it)" in said
    tolerated = read_configuration(
        config("providers: {sport: {enabled: true, required: false}, paper: {enabled: true}}"), {}, find_installed()
    )
    record = tolerated.providers.wanted["sport"].record
    assert record is not None
    assert record.state == "incompatible"
