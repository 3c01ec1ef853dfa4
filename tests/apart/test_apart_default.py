"""A package may ask for a process of its own, which an entry that says nothing of it then has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.config.run_settings import RunSettings
from toolplug.packages.entry_points import find_installed

ME = Principal(scopes=frozenset({"tools:call"}))
SOURCE = """
import os
from toolplug import FunctionProvider, tool

class Asking(FunctionProvider):
    @tool
    def where(self) -> str:
        "Return the process and a variable."
        return f"{os.getpid()} {os.environ.get('DATABASE_PLACE', 'none')}"
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package of two types, of which one asks."""
    info = tmp_path / "packages" / "asking-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: asking\nVersion: 1.0\nRequires-Dist: toolplug\n")
    points = "[toolplug.providers]\nasking = asking_types:Asking\ncalm = asking_types:Asking\n"
    (info / "entry_points.txt").write_text(f"{points}[toolplug.apart]\nasking = asking_types:Asking\n")
    (info.parent / "asking_types.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.setenv("DATABASE_PLACE", "of the host")
    return info.parent


@pytest.mark.requirement("I36-default")
def test_a_package_says_which_of_its_types_ask(packages: Path) -> None:
    types = find_installed([str(packages)]).types
    assert {name: found.apart for name, [found] in types.items()} == {"asking": True, "calm": False}


@pytest.mark.requirement("I36-default")
@pytest.mark.parametrize(
    ("run", "process"), [({}, True), ({"process": True}, True), ({"process": False}, False), ({"worker": True}, False)]
)
def test_what_an_entry_says_of_its_process_is_so(run: Mapping[str, object], process: bool) -> None:
    settings = RunSettings.model_validate(run)
    assert settings.or_default(apart=True).process is process
    assert settings.or_default(apart=False) is settings


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.requirement("I36-default")
@pytest.mark.parametrize(
    ("entry", "apart", "variable"),
    [
        ({"type": "asking"}, True, "of the host"),
        ({"type": "asking", "run": {"process": True}}, True, "none"),
        ({"type": "asking", "run": {"process": False}}, False, "of the host"),
        ({"type": "calm"}, False, "of the host"),
    ],
)
async def test_a_provider_that_asks_has_a_process_with_the_variables_of_the_host(
    packages: Path, entry: Mapping[str, object], apart: bool, variable: str
) -> None:
    providers = {"made": {"enabled": True, **entry}}
    async with open_host({"store": "memory://", "providers": providers}) as host:
        context = CallContext(principal=ME)
        found = (await host.executor_for(ME).execute(ToolCall("c1", "where", {}), context)).output.partition(" ")
    assert (int(found[0]) != os.getpid(), found[2]) == (apart, variable)
