"""Functions are called by verbs: `refuse`, not `refused`; `name_of`, not `named` (the glossary's rule for names)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.project.sources import sources

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

IRREGULAR = re.compile(
    "begun|born|bought|bound|brought|broken|built|caught|chosen|dealt|done|drawn|driven|fed|forgotten|frozen|given|gone"
    "|grown|heard|held|hidden|kept|known|laid|led|lent|lost|made|met|overridden|paid|said|seen|sent|shown|sold|sought"
    "|spent|spoken|stolen|stood|taken|taught|thought|thrown|told|torn|understood|withheld|woken|won|written"
)

VERBS = frozenset(["bound", "embed", "feed", "need", "seed", "shed", "speed"])
"""Words with the form of a participle that are verbs or nouns."""

MOST_PUBLIC = 0.05
"""Of all functions: names that other modules use, which are renamed with the module that they are in."""

BEFORE = {
    "catalog/validation/json_size.py: _counted",
    "cli/serving/edge.py: _refused",
    "execution/call_hooks/call_hooks.py: _replaced",
    "cluster/concurrency.py: _borrowed",
    "cluster/rate.py: _borrowed",
    "http/providers/routes.py: _handled",
    "parts/mcp/client/plans.py: _offered",
    "parts/mcp/client/plans.py: _quarantined",
    "parts/mcp/discovery/watched_server.py: _listed",
    "parts/mcp/sdk/connection.py: _requested",
    "parts/mcp/sdk/resource_updates.py: _listened",
    "parts/responses/answers/fields.py: _merged",
    "parts/responses/answers/reader.py: _noted",
    "parts/responses/items/hosted_calls.py: _decided",
    "parts/responses/openai_backend.py: _streamed",
    "parts/sessions/relay.py: _gone",
    "model_apis/stubs.py: _listed",
    "search/index.py: _divided",
    "cluster/followed.py: _loaded",
}
"""Private functions whose verb another function of the file has; the list only gets shorter."""


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
        for source in sources("src/toolplug/**/*.py")
        for node in source.nodes
        if isinstance(node, FUNCTIONS) and not any("property" in ast.unparse(each) for each in node.decorator_list)
    )


def _participles(*, private: bool) -> Iterator[str]:
    for function in functions():
        name = function.rpartition(" ")[2]
        if is_lone_participle(name) and name.startswith("_") is private:
            yield function


def test_a_private_function_is_called_by_a_verb() -> None:
    assert set(_participles(private=True)) == BEFORE


def test_few_public_functions_are_called_by_a_participle() -> None:
    assert len([*_participles(private=False)]) <= MOST_PUBLIC * len(functions())
