"""The base of providers with another framework's tools, and objects that a setting names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from toolplug import CallContext, ForeignTool, ForeignTools, FunctionRegistry, ToolCall, import_object
from toolplug.errors import ConfigError, InvalidDefinition
from toolplug.runtime.threads import in_own_thread

pytestmark = pytest.mark.anyio


def described(name: str, **parameters: object) -> ForeignTool:
    return ForeignTool(name=name, description=f"The tool {name}.", parameters=parameters, source=f"source of {name}")


class Sources(ForeignTools):
    """Answers the object that it was given for a tool."""

    found: tuple[ForeignTool, ...] = ()

    async def start(self, site: object) -> None:
        self.offer(self.found)

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        return self.source_of(call.name)


@pytest.mark.requirement("I39-foreign-tools")
async def test_what_cannot_be_used_is_left_out_with_a_warning_and_the_rest_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Mixed(Sources):
        found = (
            described("good", properties={"a": {"type": "string"}}),
            described("no name"),
            described("good"),
            described("list", type="array"),
            ForeignTool(name="last", description="La\u200bst.", parameters={}, source=None),
        )

    with caplog.at_level(logging.INFO, "toolplug.providers.mixed"):
        async with FunctionRegistry([Mixed()]) as registry:
            assert list(registry.catalog) == ["good", "last"]
            assert (await registry.call("good", a="b")).output == "source of good"
            assert not registry.can_execute("list")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.partition(":")[0] for text in warnings] == [
        f"left out the tool '{name}'" for name in ("no name", "good", "list")
    ]
    assert "another tool has this name" in warnings[1]
    removed = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert "tool 'last': /description: invisible characters" in removed


@pytest.mark.requirement("I39-foreign-tools")
@pytest.mark.parametrize(
    ("found", "said"), [((), "it has no tools"), ((described("no name"),), "'no name': ")], ids=["none", "unusable"]
)
async def test_without_a_tool_that_can_be_used_it_does_not_start(found: tuple[ForeignTool, ...], said: str) -> None:
    provider = Sources()
    provider.found = found
    with pytest.raises(ConfigError, match=said):
        async with FunctionRegistry([provider]):
            raise AssertionError("it must not start")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text("class Box:\n    deep = 'value'\nhere = __file__\nruns = []\n")
    return tmp_path


@pytest.mark.requirement("I39-foreign-tools")
def test_an_object_is_named_by_module_or_file_and_runs_once_for_each_content_and_place(folder: Path) -> None:
    assert import_object("json.decoder:JSONDecoder.decode", folder).__name__ == "decode"  # type: ignore[attr-defined]
    assert import_object("./own.py:Box.deep", folder) == "value"
    runs = import_object("own.py:runs", folder)
    assert import_object(f"{folder / 'own.py'}:runs", Path()) is runs
    elsewhere = folder / "other"
    elsewhere.mkdir()
    (elsewhere / "own.py").write_text((folder / "own.py").read_text())
    assert import_object("own.py:here", elsewhere) == str(elsewhere / "own.py")
    (folder / "own.py").write_text("runs = 'changed'")
    assert import_object("own.py:runs", folder) == "changed"


@pytest.mark.requirement("I39-foreign-tools")
async def test_two_threads_that_import_a_file_at_a_time_both_get_the_whole_of_it(folder: Path) -> None:
    (folder / "slow.py").write_text(
        "import time\nfirst = 1\nfor _ in range(20):\n    time.sleep(0.001)\nlast = object()\n"
    )
    given = await asyncio.gather(*(in_own_thread(partial(import_object, "slow.py:last", folder)) for _ in range(8)))
    assert len(set(given)) == 1


WRONG: Mapping[str, str] = {
    "own.py:Bxo": r"own.py has no 'Bxo'; did you mean 'Box'\?",
    "gone.py:x": "gone.py cannot be read: No such file or directory; a relative path is below",
    "json.nothing:x": "there is no module 'json.nothing'; correct the name, or install the package",
    "a b:x": "'a b' is no module; write package.module:Name, or ./file.py:name",
    "": "'' is no module",
    "broken.py:x": "importing broken.py raised ZeroDivisionError: division by zero; fix the file",
    "exits.py:x": "importing exits.py raised SystemExit: 3; fix the file",
    "needs.py:x": "importing needs.py raised ModuleNotFoundError: No module named 'no_such'; install 'no_such', which",
    "needs:x": "importing needs raised ModuleNotFoundError: No module named 'no_such'; install 'no_such', which",
    "older:x": "No module named 'json.nothing'; install the version of 'json' that it needs",
    "crashes:x": "importing crashes raised RuntimeError; update or remove its package",
}


@pytest.mark.requirement("I39-foreign-tools")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_name_says_what_is_wrong_and_the_fix(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.syspath_prepend(str(folder))
    (folder / "broken.py").write_text("1 / 0")
    (folder / "older.py").write_text("import json.nothing")
    (folder / "exits.py").write_text("raise SystemExit(3)")
    (folder / "needs.py").write_text("import no_such")
    (folder / "crashes.py").write_text("raise RuntimeError")
    with pytest.raises(InvalidDefinition, match=WRONG[name]):
        import_object(name, folder)
