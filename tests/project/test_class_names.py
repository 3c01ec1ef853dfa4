"""One class name, one meaning: a reader who searches for a name finds one class (rule 2 of the style guide)."""

from __future__ import annotations

import ast
from collections import Counter

from tests.project.sources import sources
from tests.requirement_table import ROOT

TWICE = {
    "Caller": "one of `toolplug`, one of `toolplug.testing.in_process`, both public",
    "Document": "a configuration file, and a saved toolset as a file, whose schema in the HTTP API has the name",
    "ServerEntries": "the protocol that the host has, and the class of MCP behind it",
    "TaskRunner": "one of two, as the version of Python has it",
    "Tool": "that of a catalog, and the public one of `toolplug.client`",
    "ToolUpdates": "the public one of `toolplug.client`, and its model in the HTTP API, whose schema has the name",
}
"""Names of two classes, with the reason; the list only gets shorter."""


def _repeated(package: str) -> dict[str, int]:
    """Return the names of several classes of a package, with their number."""
    names = Counter(
        node.name for source in sources(f"{package}/**/*.py") for node in source.nodes if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in names.items() if count > 1}


def test_each_class_has_a_name_of_its_own() -> None:
    assert _repeated("src/toolplug") == dict.fromkeys(TWICE, 2)


def test_each_class_of_a_plugin_has_a_name_of_its_own() -> None:
    plugins = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("plugins/*/src/*")]
    assert plugins
    assert {plugin: names for plugin in plugins if (names := _repeated(plugin))} == {}
