"""What a tool of a session may look like: each limit at n and n+1, each fault by its key."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.sessions.fixtures import definition

from toolplug.errors import InvalidDefinition
from toolplug.parts.sessions.tools.session_tool import DefinitionCache

KIB = 1024


def fault(raw: object) -> str:
    """The key that is to blame."""
    with pytest.raises(InvalidDefinition) as refusal:
        DefinitionCache().tool(raw)
    assert str(refusal.value)
    assert len(str(refusal.value)) < 2 * KIB
    return refusal.value.at


def taken(raw: object) -> dict[str, Any]:
    """The definition as metadata shows it."""
    return orjson.loads(DefinitionCache().tool(raw).wire)


@pytest.mark.requirement("C-6-tool-shape")
def test_a_whole_definition_is_kept_as_it_was_given() -> None:
    whole = {
        "name": "add_rows",
        "description": "Adds rows.",
        "inputSchema": {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]},
        "outputSchema": {"type": "object"},
        "annotations": {"title": "Add", "readOnlyHint": False, "idempotentHint": True, "openWorldHint": False},
        "requires": ["storage", {"type": "data_analysis", "level": "basic"}],
    }
    assert taken(whole) == whole
    tool = DefinitionCache().tool(whole)
    assert (tool.name, tool.definition.ref.kind, tool.definition.ref.source) == ("add_rows", "session", "_session")
    assert (tool.definition.hints.read_only, tool.definition.hints.idempotent) == (False, True)


def test_what_is_null_is_as_good_as_left_out() -> None:
    raw = definition("a", outputSchema=None, annotations=None, requires=None)
    assert taken(raw | {"description": None}) == {"name": "a", "inputSchema": {"type": "object"}}


@pytest.mark.requirement("C-6-no-input-schema")
@pytest.mark.parametrize("raw", [{"name": "a"}, {"name": "a", "inputSchema": None}])
def test_a_tool_without_input_schema_takes_no_arguments(raw: dict[str, object]) -> None:
    tool = DefinitionCache().tool(raw)
    assert tool.definition.parameters.is_valid({})
    assert not tool.definition.parameters.is_valid({"a": 1})
    assert taken(raw)["inputSchema"] == tool.definition.parameters.value


def test_equal_definitions_are_one_object_while_anybody_has_it() -> None:
    pool = DefinitionCache()
    first = pool.tool(definition("a", "Same."))
    assert pool.tool(definition("a", "Same.")) is first
    assert pool.tool(definition("a", "Other.")) is not first
    assert pool.tool(definition("a", "Same.\u200b")) is first


FAULTS: list[tuple[object, str]] = [
    (None, ""),
    ("a", ""),
    ([], ""),
    ({}, "name"),
    (definition("a") | {"name": None}, "name"),
    (definition("a") | {"name": 7}, "name"),
    (definition("a") | {"description": 7}, "description"),
    (definition("a") | {"inputSchema": []}, "inputSchema"),
    (definition("a") | {"inputSchema": True}, "inputSchema"),
    (definition("a") | {"inputSchema": {"type": "string"}}, "inputSchema.type"),
    (definition("a") | {"inputSchema": {"type": ["object", "null"]}}, "inputSchema.type"),
    (definition("a") | {"inputSchema": {"type": "object", "properties": []}}, "inputSchema"),
    (definition("a") | {"inputSchema": {"type": "object", "required": "x"}}, "inputSchema"),
    (definition("a") | {"inputSchema": {"properties": {"x": {"type": "thing"}}}}, "inputSchema"),
    (definition("a") | {"inputSchema": {"properties": {"x": {"pattern": "("}}}}, "inputSchema"),
    (definition("a") | {"inputSchema": {"properties": {"x": {"pattern": r"(?=a)\1"}}}}, "inputSchema"),
    (definition("a") | {"inputSchema": {"$ref": "#/$defs/none"}}, "inputSchema"),
    (definition("a") | {"inputSchema": {"$ref": "https://example.com/s.json"}}, "inputSchema"),
    (definition("a") | {"inputSchema": {"$ref": "file:///etc/passwd"}}, "inputSchema"),
    (definition("a") | {"outputSchema": {"type": "array"}}, "outputSchema.type"),
    (definition("a") | {"outputSchema": "x"}, "outputSchema"),
    (definition("a") | {"annotations": []}, "annotations"),
    (definition("a") | {"annotations": {"x": {}}}, "annotations"),
    (definition("a") | {"annotations": {"readOnlyHint": "yes"}}, "annotations.readOnlyHint"),
    (definition("a") | {"annotations": {"destructiveHint": 1}}, "annotations.destructiveHint"),
    (definition("a") | {"handler": "x"}, "handler"),
    (definition("a") | {"input_schema": {}}, "input_schema"),
    (definition("a") | {"x" * 500: 1}, "x" * 80),
    (definition("a") | {"description": "half \ud800"}, ""),
]


@pytest.mark.requirement("C-6-tool-shape", "C-6-update-invalid")
@pytest.mark.parametrize(("raw", "at"), FAULTS)
def test_a_bad_definition_is_refused_by_the_key_to_blame(raw: object, at: str) -> None:
    assert fault(raw) == at


@pytest.mark.requirement("C-1-foreign-tool-name")
@pytest.mark.parametrize("name", ["a", "A-Z_0.9/x", "x" * 128, "..", "/", "a.b.c"])
def test_a_name_of_the_alphabet_is_taken(name: str) -> None:
    assert taken(definition(name))["name"] == name


@pytest.mark.requirement("C-1-foreign-tool-name", "C-6-limits")
@pytest.mark.parametrize("name", ["", "x" * 129, "a b", "a\n", "ä", "а", "a\u200b", "a:b", "a\\b", "a\u202eb"])
def test_a_name_of_other_characters_or_of_129_is_refused(name: str) -> None:
    assert fault(definition(name)) == "name"


@pytest.mark.requirement("C-6-limits")
def test_a_definition_of_64_kib_is_taken_and_a_larger_one_is_not() -> None:
    def sized(size: int) -> dict[str, object]:
        empty = definition("a", annotations={"x": ""})
        return definition("a", annotations={"x": "x" * (size - len(orjson.dumps(empty)))})

    assert len(orjson.dumps(taken(sized(64 * KIB)))) == 64 * KIB
    assert fault(sized(64 * KIB + 1)) == ""


@pytest.mark.requirement("C-6-limits")
def test_a_schema_of_depth_32_is_taken_and_a_deeper_one_is_not() -> None:
    def deep(levels: int) -> dict[str, object]:
        schema: dict[str, object] = {}
        for _ in range(levels):
            schema = {"not": schema}
        return definition("a") | {"inputSchema": schema}

    taken(deep(32))
    assert fault(deep(33)) == "inputSchema"


@pytest.mark.requirement("C-6-limits")
def test_a_schema_of_2000_nodes_is_taken_and_a_larger_one_is_not() -> None:
    def wide(nodes: int) -> dict[str, object]:
        # The schema itself, its list and what stands in it.
        return definition("a") | {"inputSchema": {"required": [str(number) for number in range(nodes - 2)]}}

    taken(wide(2_000))
    assert fault(wide(2_001)) == "inputSchema"


@pytest.mark.requirement("C-6-limits")
def test_a_description_of_8_kib_is_taken_and_a_longer_one_is_not() -> None:
    taken(definition("a", "x" * 8 * KIB))
    assert fault(definition("a", "x" * (8 * KIB + 1))) == "description"
    assert fault(definition("a", "ä" * 4 * KIB + "x")) == "description"


def test_what_nobody_can_see_is_taken_out_of_a_description() -> None:
    assert taken(definition("a", "Adds\u202e rows\u200b.\x00"))["description"] == "Adds rows."


def test_a_reference_into_the_schema_itself_is_taken() -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}}
    assert taken(definition("a") | {"inputSchema": schema})["inputSchema"] == schema


def test_a_pattern_is_compiled_in_linear_time() -> None:
    tool = DefinitionCache().tool(definition("a") | {"inputSchema": {"properties": {"x": {"pattern": "^(a+)+$"}}}})
    assert not tool.definition.parameters.is_valid({"x": "a" * 5_000 + "!"})


def test_what_is_no_json_is_no_definition() -> None:
    assert fault(definition("a") | {"annotations": {"x": {1}}}) == ""
    assert fault({1: "a"}) == "1"
