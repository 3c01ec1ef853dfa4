"""Schemas of servers' tools over the limits: what is too large goes, and the rest stays."""

from __future__ import annotations

import pytest
from tests.discovery.test_sanitised import kept, nested

from toolplug.catalog.schema import MAX_SCHEMA_BYTES
from toolplug.errors import HiddenCharacter
from toolplug.foreign.definitions import sanitise_tool

TEXT = {"type": "string", "description": "kept"}
MANY = {str(n): {"allOf": [{"$ref": f"#/$defs/{min(n + 1, 20)}"}] * 2} for n in range(20)} | {"20": {}}


@pytest.mark.requirement("C-8-sanitised", "DISC-safe-schema")
@pytest.mark.parametrize(
    ("large", "why"),
    [
        ({**TEXT, "enum": [f"v{n}" for n in range(5_000)]}, "the schema has more than 2000 nodes"),
        ({**TEXT, **nested(40)}, "the schema is more than 32 levels deep"),
        ({**TEXT, **nested(900)}, "the schema is more than 32 levels deep"),
        ({**TEXT, "title": "x" * MAX_SCHEMA_BYTES}, "the schema has "),
        (lambda: {**TEXT, "properties": {f"k{n}": {} for n in range(500_000)}}, "the schema has more than 2000 nodes"),
    ],
    ids=range(5),
)
def test_of_a_schema_over_the_limits_the_largest_part_is_any_value_of_its_type(large: object, why: str) -> None:
    large = large() if callable(large) else large
    rest = {"keep": {"type": "integer", "minimum": 1}}
    value, cut = kept({"type": "object", "properties": {"large": large, **rest}, "required": ["keep"]})
    assert value == {"type": "object", "properties": {"large": TEXT, **rest}, "required": ["keep"]}
    assert [line.startswith(f"/inputSchema/properties/large: {why}") for line in cut] == [True], cut


def test_of_many_large_parts_as_many_as_needed_go_and_definitions_too() -> None:
    wide = {f"p{n}": {"type": "object", "properties": {f"q{m}": {} for m in range(100)}} for n in range(40)}
    value, cut = kept({"properties": {**wide, "keep": {"type": "integer"}}})
    assert value["properties"]["keep"] == {"type": "integer"}
    assert (len(value["properties"]), 20 <= len(cut) <= 40) == (41, True)
    value, cut = kept({"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": MANY})
    assert value["properties"] == {"a": {"$ref": "#/$defs/0"}}
    assert all(line.startswith("/inputSchema/") and "expand more than 10000 times" in line for line in cut)


def test_a_hidden_character_beside_a_part_over_the_limits_is_refused_all_the_same() -> None:
    hidden = {"type": "object", "properties": {"a\u200b": {}, "large": {"enum": list(range(5_000))}}}
    with pytest.raises(HiddenCharacter):
        sanitise_tool({"name": "t", "inputSchema": hidden}, "x")
