"""The examples of public classes run as they stand, and the classes without one only become fewer."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import pytest
from docs.generator.api_pages import exports
from tests.docs.fences import Fence, fences

WITHOUT = 41
"""Public classes without an example; a new one has an example, and who adds one to an older class lowers this."""


def examples(kind: type) -> list[Fence]:
    """The blocks of the class's own docstring, which its page of the reference shows."""
    return list(fences(inspect.cleandoc(vars(kind).get("__doc__") or "") + "\n"))


CLASSES = {f"{module}.{name}": value for module, name, value in exports() if inspect.isclass(value)}
SHOWN = {name: blocks for name, kind in CLASSES.items() if (blocks := examples(kind))}
CONNECTS = {
    "toolplug.apart.ApartCallFailed",
    "toolplug.apart.FunctionProcess",
    "toolplug.client.HostUnreachable",
    "toolplug.testing.UnrecordedRequest",
}
"""Their examples start a process, or use the network of this machine."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.process) if name in CONNECTS else name for name in SHOWN]
)
def test_the_example_of_a_class_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in SHOWN[name]:
        assert block.language == "python", f"line {block.line}: only Python is run"
        program = tmp_path / "example.py"
        program.write_text(block.text, "utf-8")
        runpy.run_path(str(program))


def test_the_example_of_a_class_uses_it() -> None:
    silent = [
        name for name, blocks in SHOWN.items() if not any(name.rpartition(".")[2] in block.text for block in blocks)
    ]
    assert silent == []


def test_public_classes_without_an_example_become_fewer() -> None:
    assert len(CLASSES) - len(SHOWN) <= WITHOUT, sorted(CLASSES.keys() - SHOWN.keys())
