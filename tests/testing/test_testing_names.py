"""The public names of `toolplug.testing`: what they are, and where they come from."""

from __future__ import annotations

import ast
import sys

import pytest
from tests.requirement_table import ROOT

import toolplug.testing
from toolplug.testing import HOMES

STUB = ast.parse((ROOT / "src/toolplug/testing/__init__.pyi").read_text("utf-8"))


def test_testing_gives_exactly_what_type_checkers_are_told() -> None:
    told = {alias.name: node.module for node in STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    given = {name: getattr(toolplug.testing, name) for name in toolplug.testing.__all__}
    assert {name: getattr(sys.modules[str(module)], name) for name, module in told.items()} == given
    assert told == HOMES
    assert all(value.__doc__ for value in given.values())


def test_a_name_that_testing_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'toolplug.testing' has no attribute 'Wombat'$"):
        toolplug.testing.Wombat  # pyright: ignore  # noqa: B018
