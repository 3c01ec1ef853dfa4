"""The words that the glossary has replaced are no names of functions and classes."""

from __future__ import annotations

import ast

from tests.project.sources import product

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
    "catalog/plan.py: knob",
    "config/composer.py: feed",
    "config/yaml_tree.py: Mark",
    "host/entered.py: reach",
    "providers/authoring.py: mark",
    "providers/offering/prompts.py: mark",
}
"""Names that are left: of a field that many limiters have, of PyYAML's marks, and of what decorators leave."""


def test_no_function_or_class_has_a_word_that_was_replaced() -> None:
    assert {
        f"{source.name.removeprefix('src/toolplug/')}: {node.name}"
        for source in product()
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.strip("_").lower() in OLD
    } == BEFORE
