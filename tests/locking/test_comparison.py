"""Each difference between a lock and what is there has its own line, and no difference has none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from toolplug.locking.lock_file import LockedEnvironment, LockedPackage
from toolplug.locking.reader import compare_environment, compare_package, compare_tools

pytestmark = [pytest.mark.unit, pytest.mark.requirement("I36-lock")]

BEFORE = LockedPackage(
    name="shop",
    version="1.0",
    digest="d" * 64,
    requires=("till",),
    permissions={"network": ["a.example"], "subprocess": True},
    files={"shop/a.py": "a" * 16, "shop/b.py": "b" * 16},
)
HERE = LockedEnvironment(version="3.11.7", at_start={"one.pth": "1"}, loose={"loose.py": "2"})
MANY = {f"shop/{number}.py": "c" * 64 for number in range(12)}
OTHER = {"digest": "e" * 64}


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, []),
        ({"version": "1.1"}, ["shop is version 1.1, and the lock has 1.0"]),
        ({"editable": True}, ["shop 1.0 is a working copy now, and was an installed package"]),
        ({"requires": ("till", "rope")}, ["shop 1.0 needs rope now"]),
        ({"requires": ()}, ["shop 1.0 needs till no longer"]),
        (
            {"permissions": {"network": ["a.example", "b.example"], "subprocess": True}},
            ["shop 1.0 asks for more: network: b.example"],
        ),
        ({"permissions": {"network": ["a.example"]}}, ["shop 1.0 asks no longer for subprocess: true"]),
        ({**OTHER, "files": {"shop/a.py": "x" * 64, "shop/b.py": "b" * 64}}, ["shop 1.0: shop/a.py has changed"]),
        (
            {**OTHER, "files": {**BEFORE.files, "shop/c.py": "c" * 64}},
            ["shop 1.0: shop/c.py is new, and no RECORD lists it"],
        ),
        ({**OTHER, "files": {"shop/a.py": "a" * 64}}, ["shop 1.0: shop/b.py is gone"]),
        (OTHER, ["shop 1.0: its files have changed"]),
    ],
)
def test_each_difference_of_a_package_has_its_line(changed: Mapping[str, object], lines: list[str]) -> None:
    now = BEFORE.model_copy(update=dict(changed))
    assert compare_package(BEFORE, now, ["shop/c.py"]) == lines


def test_a_package_that_became_an_installed_one_and_one_that_is_new_are_differences() -> None:
    assert compare_package(BEFORE.model_copy(update={"editable": True}), BEFORE) == [
        "shop 1.0 is an installed package now, and was a working copy"
    ]
    assert compare_package(None, BEFORE) == ["shop 1.0 is not in the lock"]


def test_of_many_files_some_are_named_and_the_others_counted() -> None:
    now = BEFORE.model_copy(update={**OTHER, "files": {**BEFORE.files, **MANY}})
    lines = compare_package(BEFORE, now)
    assert lines[:8] == [f"shop 1.0: {path} is new" for path in [*MANY][:8]]
    assert lines[8:] == ["shop 1.0: 4 more files are different"]


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, []),
        ({"version": "3.11.9"}, []),
        ({"version": "3.12.1"}, ["this Python is Python 3.12.1, and the lock has 3.11.7"]),
        ({"at_start": {"one.pth": "9"}}, ["one.pth has changed; it runs at each start of this Python"]),
        ({"loose": {"loose.py": "9"}}, ["the module loose.py has changed, and no RECORD lists it"]),
    ],
)
def test_each_difference_of_an_interpreter_has_its_line(changed: Mapping[str, object], lines: list[str]) -> None:
    now = HERE.model_copy(update=dict(changed))
    assert [*compare_environment(HERE, now)] == lines


def test_an_interpreter_that_is_not_locked_is_a_difference() -> None:
    assert [*compare_environment(None, HERE)] == ["this Python is not in the lock"]


def test_each_tool_has_its_line() -> None:
    before, now = {"same": "1", "other": "2", "gone": "3"}, {"same": "1", "other": "9", "new": "4"}
    assert [*compare_tools("X", before, now)] == [
        "X: its tool 'other' has another description, or takes other arguments",
        "X: its tool 'new' is new",
        "X: its tool 'gone' is gone",
    ]
