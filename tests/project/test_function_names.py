"""Functions are called by verbs: `refuse`, not `refused`; `name_of`, not `named` (the glossary's rule for names)."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.project.sources import product

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

IRREGULAR = re.compile(
    "begun|born|bought|bound|brought|broken|built|caught|chosen|dealt|done|drawn|driven|fed|forgotten|frozen|given|gone"
    "|grown|heard|held|hidden|kept|known|laid|led|lent|lost|made|met|overridden|paid|said|seen|sent|shown|sold|sought"
    "|spent|spoken|stolen|stood|taken|taught|thought|thrown|told|torn|understood|withheld|woken|won|written"
)

VERBS = frozenset(["bound", "embed", "feed", "need", "seed", "shed", "speed"])
"""Words with the form of a participle that are verbs or nouns."""

KEPT = {
    "catalog/catalog.py": "annotated merged offered ordered planned prefixed rendered renamed undeferred",
    "catalog/layered_catalog.py": "annotated offered planned prefixed rendered renamed undeferred",
    "catalog/offering.py": "prefixed",
    "client/application.py": "settled",
    "client/tool.py": "taken",
    "parts/responses/builder.py": "added done told",
    "testing/provider_check.py": "made",
    "toolsets/saved/service.py": "saved",
}
"""By file: the reshapings of catalogs, which return one that is so, and methods that the reference lists for users."""


def is_lone_participle(name: str) -> bool:
    """Return whether a function's name is one word, and that the past participle of a verb."""
    word = name.strip("_")
    return (
        "_" not in word and word not in VERBS and bool(IRREGULAR.fullmatch(word) or re.fullmatch("[a-z]{2,}ed", word))
    )


@cache
def functions() -> tuple[str, ...]:
    """Return `file: name` of each function of the product but its properties."""
    return tuple(
        f"{source.name.removeprefix('src/toolplug/')}: {node.name}"
        for source in product()
        for node in source.nodes
        if isinstance(node, FUNCTIONS) and not any("property" in ast.unparse(each) for each in node.decorator_list)
    )


def _participles() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for function in functions():
        file, _, name = function.partition(": ")
        if is_lone_participle(name):
            found.setdefault(file, set()).add(name)
    return found


def test_a_function_is_called_by_a_verb() -> None:
    assert _participles() == {file: set(names.split()) for file, names in KEPT.items()}
