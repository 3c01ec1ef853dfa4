"""The words that the glossary has replaced name no function, class or field of an answer, and are not said to users."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.project.sources import product

_DIALECT = re.compile(r"\bis no name\b|\bof yours\b")

OLD = frozenset(
    [
        "asker",
        "away",
        "brake",
        "carried",
        "carrier",
        "desk",
        "endings",
        "entrance",
        "exchange",
        "feed",
        "floor",
        "greet",
        "guarded",
        "heard",
        "house",
        "joined",
        "joint",
        "keeping",
        "kept",
        "knob",
        "knobs",
        "lanes",
        "ledger",
        "lending",
        "life",
        "mark",
        "marking",
        "obituary",
        "outage",
        "outflow",
        "outlet",
        "patience",
        "places",
        "reach",
        "room",
        "settle",
        "slot",
        "speaker",
        "surroundings",
        "tape",
        "tries",
        "whose",
    ]
)
BEFORE = {
    "config/composer.py: feed",
    "config/yaml_tree.py: Mark",
    "host/entered.py: reach",
    "http/providers/admin.py: kept",
    "providers/authoring.py: mark",
    "providers/offering/decorators.py: mark",
}
"""Names that are left: of PyYAML's marks, of what a reload has kept, and of what decorators leave."""


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the name of a function or a class, and the fields of an answer over HTTP."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    if isinstance(node, ast.ClassDef) and "TypedDict" in [ast.unparse(base) for base in node.bases]:
        yield from (ast.unparse(child.target) for child in node.body if isinstance(child, ast.AnnAssign))


def test_no_function_class_or_field_has_a_word_that_was_replaced() -> None:
    assert {
        f"{source.name.removeprefix('src/toolplug/')}: {name}"
        for source in product()
        for node in source.nodes
        for name in _names(node)
        if name.strip("_").lower() in OLD
    } == BEFORE


def test_users_are_not_told_in_the_old_dialect() -> None:
    root = Path(__file__).parents[2]
    patterns = ("src/**/*.py", "plugins/*/src/**/*.py", "plugins/*/src/**/*.js", "docs/**/*.md", "README.md")
    texts = {path: path.read_text("utf-8") for pattern in patterns for path in root.glob(pattern)}
    assert len(texts) > 500
    assert [(path.name, found[0]) for path, text in texts.items() for found in _DIALECT.finditer(text)] == []
