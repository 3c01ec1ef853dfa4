"""What an application computes before it tells its host: the difference of two lists, and the capabilities it needs."""

from __future__ import annotations

import json
import subprocess
from importlib.resources import files
from typing import Any

import pytest
from pydantic import ValidationError
from tests.node.installed import node

from toolplug.client import Capability, OfferedTool, Requirement, Tool, compare_tools, needed_capabilities

pytestmark = pytest.mark.requirement("I33-10-differences")

BEFORE: list[dict[str, Any]] = [
    {"name": "kept", "description": "As it was.", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "gone", "inputSchema": {"type": "object"}},
    {"name": "changed", "inputSchema": {"type": "object", "properties": {"a": {"const": 1}}}},
]
AFTER: list[dict[str, Any]] = [
    {
        "name": "new",
        "inputSchema": {"type": "object"},
        "requires": ["storage", {"type": "messaging", "level": "basic"}],
    },
    {"name": "changed", "inputSchema": {"type": "object", "properties": {"a": {"const": True}}}},
    {"inputSchema": {"properties": {}, "type": "object"}, "description": "As it was.", "name": "kept"},
    {"name": "more", "inputSchema": {"type": "object"}, "requires": [{"type": "storage", "level": "advanced"}]},
]


def test_two_lists_of_any_form_of_a_tool_are_compared() -> None:
    def rows(limit: int) -> int:
        "Count the rows."
        return limit

    found = compare_tools(BEFORE, AFTER)
    assert ([tool["name"] for tool in found.added], found.removed) == (["new", "more"], ("gone",))
    assert found.modified == (AFTER[1],)
    assert found.wire() == {"added": [AFTER[0], AFTER[3]], "removed": ["gone"], "modified": [AFTER[1]]}
    offered = [OfferedTool.model_validate({**tool, "available": False, "reason": "plugin_gone"}) for tool in BEFORE]
    assert not compare_tools(BEFORE, offered), "what a stream says of a tool is no part of its definition"
    assert not compare_tools([rows], [Tool(rows)])
    assert compare_tools([rows], [Tool(rows, description="Counts.")]).modified


def test_the_capabilities_that_the_tools_need_are_those_at_the_highest_level() -> None:
    assert needed_capabilities(AFTER) == [
        Capability(type="storage", level="advanced"),
        Capability(type="messaging"),
    ]

    def fit() -> None:
        "Fit."

    wanted = Tool(fit, requires=["computation", Requirement("computation", "enterprise")])
    assert needed_capabilities([wanted, fit]) == [Capability(type="computation", level="enterprise")]
    assert needed_capabilities(BEFORE) == []
    with pytest.raises(ValidationError, match="flying"):
        needed_capabilities([{"name": "fly", "requires": ["flying"]}])


@pytest.mark.process
def test_the_module_of_web_pages_computes_the_same() -> None:
    module = files("toolplug.http").joinpath("toolplug.js")
    code = f"""
        import {{ readFileSync }} from "node:fs";
        const text = readFileSync({json.dumps(str(module))}, "utf-8");
        const tools = await import("data:text/javascript;base64," + Buffer.from(text).toString("base64"));
        const [before, after] = {json.dumps([BEFORE, AFTER])};
        console.log(JSON.stringify([tools.compareTools(before, after), tools.neededCapabilities(after)]));
    """
    command = [str(node()), "--input-type=module", "-e", code]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    updates, capabilities = json.loads(answer.stdout)
    assert updates == compare_tools(BEFORE, AFTER).wire()
    assert capabilities == [item.wire() for item in needed_capabilities(AFTER)]
