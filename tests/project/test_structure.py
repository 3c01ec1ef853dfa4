"""The sizes of modules and folders, in both directions, and the names that were replaced by standard terms."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import PurePath

from tests.project.sources import Source, everything, sources

PACKAGE = "toolplug"

SMALL_LINES = 60
"""A module below this that only one module of its folder imports belongs in that module."""

SMALL_ON_PURPOSE = {
    f"{PACKAGE}.http.routes": "the table of all routes is where people look for one",
    f"{PACKAGE}.locking.compiled": "a program for interpreters that have no toolplug",
}
"""Small modules with a single importer that are files of their own nevertheless: module → reason."""

MOST_MODULES = 15
"""In one folder, `__init__` not counted."""

MANY_MODULES = {f"{PACKAGE}.cli": "one file for each command"}

MOST_IMPORTS = 18
"""Modules of our own that one module imports, outside of `host`."""

MOST_IMPORTS_IN_HOST = 25
"""The same in `host`, which joins every part."""

MOST_IMPORTS_PER_100_LINES = 3.3

OLD_NAMES = frozenset(
    [
        "house",
        "floor",
        "room",
        "ServerDesk",
        "ToolsetDesk",
        "ResponsesDesk",
        "desk",
        "doors",
        "Entrance",
        "HostDoor",
        "OriginDoor",
        "OwnRoute",
        "OwnRoutes",
        "own_routes",
        "Exchange",
        "Lanes",
        "Carrier",
        "Carried",
        "Job",
        "Tries",
        "tries",
        "guarded",
        "knobs",
        "Basis",
        "Layer",
        "Effective",
        "Ledger",
        "CallSeries",
        "Brake",
        "Abandoned",
        "Joint",
        "joined",
        "on_mark",
        "marks",
        "followed_by",
        "left_by",
        "away",
        "Kept",
        "Surroundings",
        "Around",
        "Setup",
        "Shared",
        "heard",
        "hears_calls",
        "last_words",
        "LastWords",
        "obituary",
        "_still",
        "Life",
        "Lending",
        "Owner",
        "settle",
        "Settlement",
        "Outage",
        "Speaker",
        "greet",
        "Line",
        "Link",
        "LoneLine",
        "Reach",
        "Wire",
        "OneAnswer",
        "ReaderLast",
        "Neighbours",
        "Stays",
        "Refused",
        "Gatekeeper",
        "OpenDoor",
        "ShutDoor",
        "Site",
        "ServerPlace",
        "Slot",
        "Wanted",
        "Feed",
        "Logbook",
        "Tape",
        "Keeping",
        "Draft",
        "Outflow",
        "Outlet",
        "Asker",
        "Whose",
        "Announcer",
        "Marking",
        "Endings",
        "Handshakes",
        "Pace",
        "Patience",
        "Places",
        "PacedLog",
        "Cuts",
        "FirstUse",
        "LonePart",
        "OnDemandPart",
        "SessionPart",
        "Equipment",
        "Permits",
        "ToolPool",
        "Introduction",
        "CodedMcp",
        "AgentWay",
        "Boom",
        "crowd_problem",
        "insist",
        "_bring",
    ]
)
"""The left column of the glossary's table of renamed identifiers."""

PUBLISHED = {"src/toolplug/parts/mcp/http/endpoint.py: Refused": "the name of a schema in /v1/openapi.json"}
"""Old names that the outside has seen: file and name → where."""

CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
"""The name of a class in a file of tests, which is not parsed for it: all of them take seconds."""

OLD_TEST_NAMES = frozenset(
    {"Desk", "Ground", "Stage", "World", "Ear", "Theatre", "desk", "ground", "stage", "world", "house"}
)
"""Names of the tests' own classes and files; pytest's words are harness, fixture, fake and client."""


def test_no_small_module_serves_only_its_neighbour() -> None:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, imported in imports().items():
        for module in imported:
            importers[module].add(name)
    found = {
        name: f"{source.lines} lines; merge it into {importer}"
        for name, source in modules().items()
        if source.lines < SMALL_LINES and len(importers[name]) == 1
        for importer in importers[name]
        if folder(importer) == folder(name) and not is_init(source) and name not in SMALL_ON_PURPOSE
    }
    assert found == {}


def test_every_exception_is_still_needed() -> None:
    assert set(SMALL_ON_PURPOSE) | set(MANY_MODULES) <= set(modules())


def test_no_folder_has_more_modules_than_a_reader_takes_in() -> None:
    sizes = Counter(folder(name) for name, source in modules().items() if not is_init(source))
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES and name not in MANY_MODULES} == {}


def test_no_module_joins_more_than_its_share() -> None:
    found = {
        name: len(imported)
        for name, imported in imports().items()
        if len(imported) > (MOST_IMPORTS_IN_HOST if name.startswith(f"{PACKAGE}.host.") else MOST_IMPORTS)
    }
    assert found == {}


def test_modules_are_large_enough_to_need_few_of_the_others() -> None:
    total = sum(len(imported) for imported in imports().values())
    lines = sum(source.lines for source in modules().values())
    assert 100 * total / lines <= MOST_IMPORTS_PER_100_LINES


def test_no_file_class_or_function_of_the_product_has_a_name_that_was_replaced() -> None:
    found = [
        f"{source.name}: {name}"
        for source in sources("src/**/*.py", "plugins/*/src/**/*.py")
        for name in (*PurePath(source.name).with_suffix("").parts, *defined(source.tree))
        if name in OLD_NAMES and f"{source.name}: {name}" not in PUBLISHED
    ]
    assert found == []


def test_no_file_or_class_of_the_tests_has_a_name_that_was_replaced() -> None:
    found = [
        f"{source.name}: {name}"
        for source in everything()
        for name in (
            *PurePath(source.name).with_suffix("").parts,
            *CLASS.findall(source.text),
        )
        if name in OLD_TEST_NAMES
    ]
    assert found == []


@cache
def modules() -> dict[str, Source]:
    """Every module of the package by its dotted name; a package by its own."""
    found: dict[str, Source] = {}
    for source in sources(f"src/{PACKAGE}/**/*.py"):
        parts = PurePath(source.name).with_suffix("").parts[1:]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = source
    return found


@cache
def imports() -> dict[str, set[str]]:
    """The modules of the package that each of them imports."""
    return {name: _imported(source.tree) for name, source in modules().items()}


def _imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == PACKAGE:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules() else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in modules())
    return found


def folder(module: str) -> str:
    return module.rpartition(".")[0]


def is_init(source: Source) -> bool:
    return PurePath(source.name).name == "__init__.py"


def defined(tree: ast.Module) -> list[str]:
    """The names of all classes and functions, methods among them."""
    return [
        node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
