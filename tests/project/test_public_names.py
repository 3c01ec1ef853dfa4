"""The package's public names: what they are, where they come from, and when they are loaded."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from tests.requirement_table import ROOT

import toolplug
from toolplug.exports import HOMES

STUB = ast.parse((ROOT / "src/toolplug/__init__.pyi").read_text("utf-8"))


def test_the_package_gives_exactly_what_type_checkers_are_told() -> None:
    assert sorted(HOMES) == sorted(toolplug.__all__)
    told = {alias.name: node.module for node in STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    given = {name: getattr(toolplug, name) for name in toolplug.__all__}
    assert {name: getattr(sys.modules[str(module)], name) for name, module in told.items()} == given


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'toolplug' has no attribute 'Wombat'$"):
        toolplug.Wombat  # pyright: ignore  # noqa: B018


@pytest.mark.process
@pytest.mark.requirement("DESIGN-import-clean")
def test_importing_the_package_loads_no_part_of_it_and_nothing_from_elsewhere() -> None:
    code = "import sys; before = set(sys.modules); import toolplug; print(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    loaded = ast.literal_eval(done.stdout)
    assert [name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names] == [
        "toolplug",
        "toolplug.exports",
    ]
