"""One class name, one meaning: a reader who searches for a name finds one class (rule 2 of the style guide)."""

from __future__ import annotations

import ast
from collections import Counter

from tests.project.sources import sources

TWICE = {
    "Caller": "one of `toolplug`, one of `toolplug.testing.in_process`, both public",
    "Document": "a configuration file, and a saved toolset as a file, whose schema in the HTTP API has the name",
    "ServerEntries": "the protocol that the host has, and the class of MCP behind it",
    "TaskRunner": "one of two, as the version of Python has it",
    "Tool": "that of a catalog, and the public one of `toolplug.client`",
    "ToolUpdates": "the public one of `toolplug.client`, and its model in the HTTP API, whose schema has the name",
}
"""Names of two classes, with the reason; the list only gets shorter."""


def _class_names() -> Counter[str]:
    return Counter(
        node.name
        for source in sources("src/toolplug/**/*.py")
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
    )


def test_each_class_has_a_name_of_its_own() -> None:
    assert {name: count for name, count in _class_names().items() if count > 1} == dict.fromkeys(TWICE, 2)
