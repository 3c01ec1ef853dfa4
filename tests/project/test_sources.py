"""How the files of the project are written, where no other gate looks."""

from __future__ import annotations

import ast
import re
from pathlib import PurePath

import pytest
from tests.project.sources import everything, product
from tests.requirement_table import ROOT

pytestmark = pytest.mark.slow

LISTS_PUBLIC_NAMES = {
    "src/toolplug/__init__.py",
    "src/toolplug/http/__init__.py",
    "src/toolplug/client/__init__.py",
    "src/toolplug/responses.py",
    *(str(stub.relative_to(ROOT).with_suffix(".py")) for stub in ROOT.glob("src/toolplug/*/__init__.pyi")),
}
"""The `__init__` files that may import and name; every other holds a docstring only."""
_LISTS = {"__all__", "HOMES", "__getattr__", "__dir__"}

BANNED = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base", "impl"}
LONGEST_FILE = 500
LONGEST_FUNCTION = 70
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_nothing_is_imported_inside_a_function() -> None:
    found = [
        f"{source.name}:{inner.lineno}"
        for source in product()
        for outer in source.nodes
        if isinstance(outer, FUNCTIONS)
        for inner in ast.walk(outer)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    assert found == []


def test_no_import_is_for_the_type_checker_alone() -> None:
    found = [
        f"{source.name}:{node.lineno}"
        for source in product()
        for node in source.nodes
        if isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"
    ]
    assert found == []


def test_no_module_keeps_state_that_a_function_rebinds() -> None:
    found = [
        f"{source.name}:{node.lineno}" for source in product() for node in source.nodes if isinstance(node, ast.Global)
    ]
    assert found == []


def test_nothing_shipped_is_left_unfinished() -> None:
    found = [
        f"{source.name}:{number}"
        for source in product()
        for number, line in enumerate(source.text.splitlines(), start=1)
        if UNFINISHED.search(line)
    ]
    assert found == []


def test_an_init_file_holds_a_docstring_and_at_most_public_names() -> None:
    found: list[str] = []
    for source in product():
        if PurePath(source.name).name != "__init__.py":
            continue
        if ast.get_docstring(source.tree) is None:
            found.append(f"{source.name}: no docstring")
        if source.name in LISTS_PUBLIC_NAMES:
            found += [f"{source.name}:{node.lineno}" for node in source.tree.body[1:] if not _names_something(node)]
        elif source.name.startswith("src/") and len(source.tree.body) > 1:
            found.append(f"{source.name}: more than a docstring")
    assert found == []


def _names_something(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return True
    return isinstance(node, ast.Assign) and {ast.unparse(target) for target in node.targets} <= _LISTS


def test_every_module_says_what_it_is() -> None:
    assert [source.name for source in product() if ast.get_docstring(source.tree) is None] == []


def test_no_file_is_longer_than_a_reader_holds_in_mind() -> None:
    lengths = {source.name: source.code_lines(1, source.lines) for source in everything()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    lengths = {
        f"{source.name}:{node.lineno} {node.name}": source.code_lines(node.lineno + 1, node.end_lineno)
        for source in product()
        for node in source.nodes
        if isinstance(node, FUNCTIONS) and node.end_lineno is not None
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_no_file_has_a_name_that_says_nothing() -> None:
    found = [source.name for source in everything() if BANNED & set(re.split(r"[/_.]", source.name))]
    assert found == []


@pytest.mark.requirement("C-4-open-table")
def test_no_type_of_a_provider_stands_in_the_framework() -> None:
    types = re.compile(r"\b(web_search|web_search_preview|file_search|code_interpreter)\w*")
    found = [
        f"{source.name}:{node.lineno} {node.value!r}"
        for source in product()
        if source.name.startswith("src/")
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and types.fullmatch(node.value)
    ]
    assert found == []


LINUX_ONLY = (
    "plugins/toolplug-code-interpreter/",
    "src/toolplug/apart/confinement/cgroups.py",
    "src/toolplug/sqlite/serving_lock.py",
    "src/toolplug/testing/provider_rules/life.py",
)
"""Read `/proc` and cgroups, which no other system has."""
MODE = re.compile("[rwax]t?[+]?")
PATHS = re.compile("file|folder|command|program")
"""What a path of a file is called; `path` is mostly that of a URL or a pointer."""


def _portable_calls() -> list[tuple[str, ast.Call, str]]:
    """Return place, call and name of each call of a function in the product, Linux's own parts left out."""
    return [
        (f"{source.name}:{node.lineno}", node, getattr(node.func, "attr", getattr(node.func, "id", "")))
        for source in product()
        if not source.name.startswith(LINUX_ONLY)
        for node in source.nodes
        if isinstance(node, ast.Call)
    ]


@pytest.mark.requirement("I32-windows")
def test_no_text_is_read_or_written_as_the_system_would_have_it() -> None:
    """Windows has an encoding and line ends of its own, which nobody sees where the tests run."""
    found = [
        f"{place}: {ast.unparse(call)}" for place, call, name in _portable_calls() if not _is_exact_text(call, name)
    ]
    assert found == []


def _is_exact_text(call: ast.Call, name: str) -> bool:
    """Return whether a call that reads or writes text says in which encoding, and if it writes with which line ends."""
    named = {keyword.arg for keyword in call.keywords}
    if name in ("read_text", "write_text"):
        encoded = "encoding" in named or len(call.args) > (name == "write_text")
        return encoded and (name == "read_text" or "newline" in named)
    texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    mode = next(filter(MODE.fullmatch, texts), "r" if isinstance(call.func, ast.Name) else "")
    binary = any(re.fullmatch("[rwax][+]?b[+]?", text) for text in texts)
    if name not in ("open", "fdopen", "NamedTemporaryFile") or binary or not mode:
        return True
    return "encoding" in named and (mode == "r" or "newline" in named)


@pytest.mark.requirement("I32-windows")
def test_no_path_is_taken_for_one_of_posix() -> None:
    """`/tmp` and the like are not where Windows has them, and `/` is not what its paths are joined with."""
    found = [
        f"{place}: {ast.unparse(call)}"
        for place, call, name in _portable_calls()
        for first in call.args[:1]
        if isinstance(first, ast.Constant) and isinstance(first.value, str)
        if (name in ("Path", "open", "listdir", "exists") and first.value.startswith("/") and first.value != "/proc")
        or (
            name in ("split", "rsplit", "partition", "rpartition")
            and (first.value == "/" or (first.value == ":" and "file" in ast.unparse(call.func)))
            and isinstance(call.func, ast.Attribute)
            and PATHS.search(ast.unparse(call.func.value).rpartition("(")[2])
        )
    ]
    assert found == []
