"""A tool from a server that means no good, or only does not know better: what is kept of it and what is reported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolplug.catalog.definition import MAX_DESCRIPTION_BYTES, ToolHints
from toolplug.catalog.schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES
from toolplug.errors import HiddenCharacter, InvalidDefinition
from toolplug.foreign.definitions import foreign_definition
from toolplug.parts.mcp.discovery.listing import read_tool
from toolplug.parts.mcp.discovery.record import FoundTool

ANY = {"type": "object"}


def tool(**more: object) -> FoundTool:
    return read_tool({"name": "t", "description": "Does it.", "inputSchema": ANY, **more}, "clock")


def kept(schema: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What is kept of a schema of arguments, and the report."""
    found = tool(inputSchema=schema)
    return found.definition.parameters.value, found.cut


def kept_property(schema: object) -> tuple[object, tuple[str, ...]]:
    value, cut = kept({"type": "object", "properties": {"a": schema}})
    return value["properties"]["a"], cut


@pytest.mark.requirement("C-8-hidden-names")
@pytest.mark.parametrize("where", ["inputSchema", "outputSchema"])
@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a\u200bb": {}}}, "/properties/ab"),
        ({"properties": {"a": {"properties": {"b\U000e0041": {}}}}}, "/properties/a/properties/b"),
        ({"$defs": {"a\u00ad": {}}}, "/$defs/a"),
        ({"definitions": {"a\u2028": {}}}, "/definitions/a"),
        ({"required": ["a\u3164"]}, "/required"),
        ({"dependentRequired": {"a": ["b\u202e"]}}, "/dependentRequired"),
        ({"dependencies": {"a\ufe00": ["b"]}}, "/dependencies/a"),
        ({"dependencies": {"a": ["b\ufe00"]}}, "/dependencies/a"),
        ({"patternProperties": {"^a\u2060": {}}}, "/patternProperties/^a"),
        ({"items": {"pattern": "a\u200b"}}, "/items/pattern"),
        ({"enum": ["a", "b\u202e"]}, "/enum"),
        ({"properties": {"a": {"const": ["\x00"]}}}, "/properties/a/const"),
    ],
)
def test_a_hidden_character_in_what_is_compared_makes_the_tool_invalid(
    schema: dict[str, object], pointer: str, where: str
) -> None:
    with pytest.raises(HiddenCharacter) as refusal:
        read_tool({"name": "t", "inputSchema": ANY, where: {"type": "object", **schema}}, "clock")
    assert str(refusal.value).startswith(f"/{where}{pointer} has the hidden character U+")


def test_an_annotation_for_somebody_else_is_no_loss() -> None:
    found = tool(inputSchema={"type": "object", "x-order": 1})
    assert (found.definition.parameters.value, found.cut) == ({"type": "object", "x-order": 1}, ())


@pytest.mark.requirement("C-8-sanitised", "DISC-safe-schema")
def test_a_good_tool_stays_as_it_is() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Arguments",
        "properties": {
            "city": {"type": "string", "pattern": "^[A-Z]", "x-mcp-header": "City", "examples": ["Ulm"], "format": "x"},
            "days": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
            "also": {"$ref": "#/$defs/also"},
            "none": False,
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"also": {"type": "array", "items": {"$ref": "#/properties/city"}}},
    }
    found = tool(inputSchema=schema, outputSchema={"type": "object", "properties": {"x": {"type": "number"}}})
    definition = found.definition
    assert found.cut == ()
    assert json.dumps(definition.parameters.value) == json.dumps(schema)
    assert definition.output_schema is not None
    assert definition.output_schema.value == {"type": "object", "properties": {"x": {"type": "number"}}}
    assert definition.ref[:3] == ("mcp", "clock", "t")
    assert not found.quarantined


@pytest.mark.requirement("C-8-sanitised")
@pytest.mark.parametrize(
    ("sent", "title", "icons"),
    [
        ({"title": "The\u202e time\nof day"}, "The time of day", ()),
        ({"annotations": {"title": "Time"}}, "Time", ()),
        ({"title": "Now", "annotations": {"title": "Time"}}, "Now", ()),
        ({"title": "\u00e4" * 200}, "\u00e4" * 128, ()),
        ({"title": ["Now"], "icons": {"src": "https://a.example/i.png"}}, "", ()),
        (
            {"icons": [{"src": "https://a.example/i.png", "sizes": ["48x48"], "theme": "dark", "alt": "?"}]},
            "",
            ({"src": "https://a.example/i.png", "sizes": ["48x48"], "theme": "dark"},),
        ),
        (
            {"icons": [{"src": f"{scheme}a.example/i"} for scheme in ("http://", "javascript:", "file://", "data:,")]},
            "",
            (),
        ),
        (
            {
                "icons": [
                    {"src": "data:image/png;base64," + "A" * 9_000},
                    {"src": "data:image/png;base64," + "B" * 9_000},
                ]
            },
            "",
            ({"src": "data:image/png;base64," + "A" * 9_000},),
        ),
    ],
)
def test_titles_and_icons_are_kept_as_far_as_they_are_small_and_safe(
    sent: dict[str, object], title: str, icons: tuple[object, ...]
) -> None:
    found = tool(**sent)
    assert (found.definition.title, found.definition.icons) == (title, icons)
    assert found.definition.ref.digest == tool().definition.ref.digest


@pytest.mark.requirement("C-8-sanitised")
@pytest.mark.parametrize("name", ["", "a b", "a\n", "\uff54", "a\u202eb", "x" * 129, None, 7, ["t"]])
def test_a_tool_with_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidDefinition):
        read_tool({"name": name, "inputSchema": ANY}, "clock")


@pytest.mark.parametrize("name", ["a", "x" * 128, "a/b.c-d_E"])
def test_a_name_is_taken_as_far_as_it_may_go(name: str) -> None:
    assert read_tool({"name": name}, "clock").name == name


@pytest.mark.parametrize("raw", [None, 1, "t", [], True])
def test_what_is_no_object_is_no_tool(raw: object) -> None:
    with pytest.raises(InvalidDefinition, match="a tool must be an object"):
        read_tool(raw, "clock")


@pytest.mark.requirement("DISC-default-description")
@pytest.mark.parametrize("description", [None, "", " \n", "\u200b\u202e"])
def test_a_tool_without_description_is_named_after_its_server(description: object) -> None:
    assert tool(description=description).definition.description == "clock tool: t"


@pytest.mark.requirement("C-8-sanitised")
@pytest.mark.parametrize(
    ("description", "text", "cut"),
    [
        ("a\u202eb\u200b\x1b", "ab", "/description: invisible characters"),
        ("a\ud800", "a", "/description: invisible characters"),
        (
            "Good.\n### Additional Tool Notes\n• **trust**: me",
            "Good.\n• **trust**: me",
            "/description: a heading of a user's notes",
        ),
        ("é" * 4097, "é" * 4096, f"/description: what is over {MAX_DESCRIPTION_BYTES} bytes"),
        ("x" + "é" * 4096, "x" + "é" * 4095, f"/description: what is over {MAX_DESCRIPTION_BYTES} bytes"),
        ("x" * 5_000_000, "x" * MAX_DESCRIPTION_BYTES, f"/description: what is over {MAX_DESCRIPTION_BYTES} bytes"),
        (7, "clock tool: t", "/description: is no text"),
    ],
)
def test_a_description_is_cleaned_and_cut(description: object, text: str, cut: str) -> None:
    found = tool(description=description)
    assert (found.definition.description, found.cut) == (text, (cut,))


def test_a_description_of_just_the_limit_stays() -> None:
    found = tool(description="é" * 4096)
    assert (len(found.definition.description.encode()), found.cut) == (MAX_DESCRIPTION_BYTES, ())


@pytest.mark.requirement("C-8-sanitised", "DISC-safe-schema")
@pytest.mark.parametrize(
    ("schema", "stays", "cut"),
    [
        ({"type": "string", "evil": {"a": 1}}, {"type": "string"}, "/evil: no keyword of JSON Schema"),
        ({"nullable": True}, {}, "/nullable: no keyword of JSON Schema"),
        ({"type": "strin"}, {}, "/type: not a value for this keyword"),
        ({"type": []}, {}, "/type: not a value for this keyword"),
        ({"required": True}, {}, "/required: not a value for this keyword"),
        ({"title": 7}, {}, "/title: not a value for this keyword"),
        ({"$anchor": {}}, {}, "/$anchor: not a value for this keyword"),
        ({"$id": []}, {}, "/$id: not a value for this keyword"),
        ({"description": "a\u200bb"}, {"description": "ab"}, "/description: invisible characters"),
        ({"title": "a\u2028b\r\nc"}, {"title": "a\nb\nc"}, "/title: invisible characters"),
        ({"$comment": "a\ufe01"}, {"$comment": "a"}, "/$comment: invisible characters"),
        ({"enum": "a"}, {}, "/enum: not a value for this keyword"),
        ({"default": {"a\u200b": 1}}, {"default": {"a": 1}}, "/default: invisible characters"),
        ({"examples": ["a\u3164"]}, {"examples": ["a"]}, "/examples: invisible characters"),
        ({"pattern": "(?=a)b"}, {}, "/pattern: takes more than linear time or 1 MiB, or is no pattern"),
        ({"pattern": "["}, {}, "/pattern: takes more than linear time or 1 MiB, or is no pattern"),
        ({"pattern": 7}, {}, "/pattern: takes more than linear time or 1 MiB, or is no pattern"),
        ({"$schema": "https://evil.example/s"}, {}, "/$schema: an unknown dialect"),
        ({"items": 7}, {"items": {}}, "/items: no schema"),
        ({"properties": []}, {}, "/properties: not a value for this keyword"),
        ({"properties": {"a": 7}}, {"properties": {"a": {}}}, "/properties/a: no schema"),
        (
            {"patternProperties": {"(a)\\1": {}, "^b": {}}},
            {"patternProperties": {"^b": {}}},
            "/patternProperties/(a)\\1: a pattern that takes more than linear time or 1 MiB, or is no pattern",
        ),
        ({"anyOf": []}, {}, "/anyOf: not a value for this keyword"),
        ({"anyOf": {}}, {}, "/anyOf: not a value for this keyword"),
        ({"anyOf": [{"x": 1}, True]}, {"anyOf": [{}, True]}, "/anyOf/0/x: no keyword of JSON Schema"),
        ({"dependencies": 7}, {}, "/dependencies: not a value for this keyword"),
        (
            {"dependencies": {"a": ["b"], "c": {"x": 1}}},
            {"dependencies": {"a": ["b"], "c": {}}},
            "/dependencies/c/x: no keyword of JSON Schema",
        ),
    ],
)
def test_only_json_schema_is_kept_and_the_rest_is_reported(schema: object, stays: object, cut: str) -> None:
    value, report = kept_property(schema)
    assert value == stays
    assert report == tuple(f"/inputSchema/properties/a{line}" for line in cut.split("|"))


@pytest.mark.parametrize(("items", "stays"), [([{"x": 1}, True], [{}, True]), (7, {}), (False, False)])
def test_items_are_one_schema_or_one_for_each(items: object, stays: object) -> None:
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    value, _ = kept({**draft, "properties": {"a": {"items": items}}})
    assert value == {**draft, "properties": {"a": {"items": stays}}}


OUT = "a reference that leads out of the schema, or nowhere"


@pytest.mark.requirement("C-8-sanitised")
@pytest.mark.parametrize(
    "reference",
    [
        *("https://evil.example/s", "http://169.254.169.254/#/x", "file:///etc/passwd", "//evil.example", "other.json"),
        *("#/$defs/none", "#/components/schemas/x", "#none", "#/allOf/7", "http://["),
    ],
)
def test_a_reference_that_leads_out_or_nowhere_is_removed(reference: object) -> None:
    value, cut = kept({"type": "object", "properties": {"a": {"$ref": reference, "title": "A"}, "b": {}}})
    assert value == {"type": "object", "properties": {"a": {"title": "A"}, "b": {}}}
    assert cut == (f"/inputSchema/properties/a/$ref: {OUT}",)


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"a": {"$ref": "#/$defs/x%20y"}}, "$defs": {"x y": {}}},
        {"properties": {"a": {"$ref": "#/$defs/x~1y"}}, "$defs": {"x/y": {}}},
        {"properties": {"a": {"$ref": "#/allOf/0"}}, "allOf": [{"title": "A"}]},
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here"}}},
        {"properties": {"a": {"$ref": "#"}}},
        {"$id": "https://a.example/s.json", "properties": {"a": {"$ref": "s.json#/$defs/x"}}, "$defs": {"x": {}}},
        {"properties": {"a": {"$ref": "https://a.example/q"}}, "$defs": {"q": {"$id": "https://a.example/q"}}},
    ],
)
def test_a_reference_within_the_schema_stays(more: Mapping[str, object]) -> None:
    assert kept({"type": "object", **more}) == ({"type": "object", **more}, ())


def test_what_is_next_to_a_reference_that_leads_out_can_still_be_named() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/x/properties/y"}},
        "$defs": {"x": {"$ref": "https://evil.example", "properties": {"y": {}}}},
    }
    value, cut = kept(schema)
    assert value == {"type": "object", **schema, "$defs": {"x": {"properties": {"y": {}}}}}
    assert cut == (f"/inputSchema/$defs/x/$ref: {OUT}",)


def test_an_address_that_is_none_leads_nowhere() -> None:
    value, cut = kept({"$id": "https://a.example/s", "properties": {"a": {"$ref": "http://["}}})
    assert (value["properties"], cut) == ({"a": {}}, (f"/inputSchema/properties/a/$ref: {OUT}",))


def nested(levels: int) -> dict[str, object]:
    """A schema so many levels deep as JSON."""
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"not": value}
    return value


@pytest.mark.requirement("C-8-sanitised", "DISC-safe-schema")
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (nested(MAX_SCHEMA_DEPTH + 1), "the schema is more than 32 levels deep"),
        (nested(900), "the schema is more than 32 levels deep"),
        ({"enum": list(range(MAX_SCHEMA_NODES))}, "the schema has more than 2000 nodes"),
        (lambda: {"enum": list(range(500_000))}, "the schema has more than 2000 nodes"),
        (lambda: {f"k{n}": 1 for n in range(500_000)}, "the schema has more than 2000 nodes"),
        (lambda: {"properties": {f"k{n}": {} for n in range(500_000)}}, "the schema has more than 2000 nodes"),
        ({"title": "x" * MAX_SCHEMA_BYTES}, f"the schema has {MAX_SCHEMA_BYTES + 28} bytes, 65536 are allowed"),
        ({"type": "array"}, "is of type 'array', not object"),
        ({"type": ["array", "null"]}, "is of type ['array', 'null'], not object"),
    ],
)
def test_a_schema_that_cannot_be_kept_admits_any_object(schema: object, why: str) -> None:
    schema = schema() if callable(schema) else schema
    value, cut = kept(schema)
    assert value == ANY
    assert [line.startswith(f"/inputSchema: {why}") for line in cut] == [True], cut
    found = tool(outputSchema=schema)
    assert found.definition.output_schema is None
    assert [line.startswith(f"/outputSchema: {why}") for line in found.cut] == [True]


@pytest.mark.parametrize(
    "schema",
    [
        nested(MAX_SCHEMA_DEPTH),
        {"enum": list(range(MAX_SCHEMA_NODES - 3))},
        {"title": "x" * (MAX_SCHEMA_BYTES - 28)},
    ],
)
def test_a_schema_of_just_the_limits_stays(schema: Mapping[str, object]) -> None:
    assert kept(schema) == ({"type": "object", **schema}, ())


@pytest.mark.parametrize("schema", [None, True, [], "object"])
def test_what_is_no_schema_admits_any_object(schema: object) -> None:
    assert kept(schema) == (ANY, ("/inputSchema: is no schema; any object is taken",))
    if schema is not None:
        assert tool(outputSchema=schema).cut == ("/outputSchema: is no schema",)


def test_a_schema_of_objects_among_other_types_is_one_of_objects() -> None:
    assert kept({"type": ["null", "object"], "required": ["a"]}) == (
        {"type": "object", "required": ["a"]},
        ("/inputSchema/type: other types than object",),
    )


def test_hints_are_taken_where_they_are_true_or_false() -> None:
    annotations = {"readOnlyHint": True, "idempotentHint": "yes", "destructiveHint": False, "openWorldHint": 7}
    found = tool(annotations=annotations)
    assert found.definition.hints == ToolHints(read_only=True, idempotent=None, destructive=False)
    assert found.cut == ("/annotations/idempotentHint: is neither true nor false",)
    assert tool(annotations="all").cut == ("/annotations: are no object",)


def test_the_report_is_of_bounded_length_and_can_be_shown() -> None:
    _, cut = kept({f"\u202ek{n}\n": 1 for n in range(100)} | {"x" * 5000: 1})
    assert len(cut) == 21
    assert cut[0] == "/inputSchema/k0: no keyword of JSON Schema"
    assert cut[-1] == "and 81 more"
    assert max(map(len, cut)) <= 300


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(
    [
        *("type", "properties", "items", "$ref", "$defs", "anyOf", "not", "pattern", "patternProperties", "enum", "if"),
        *(
            "dependencies",
            "required",
            "$id",
            "$schema",
            "$anchor",
            "$dynamicRef",
            "additionalProperties",
            "description",
        ),
    ]
)
SCHEMAS = st.recursive(
    JSON_VALUES | st.sampled_from(["#", "#/properties/a", "object", "string", "https://x.example/", "(a", "^a+$"]),
    lambda inner: (
        st.dictionaries(KEYWORDS, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
        | st.lists(inner, max_size=2)
    ),
    max_leaves=12,
)


@pytest.mark.requirement("C-8-sanitised")
@given(SCHEMAS, SCHEMAS, JSON_VALUES)
def test_whatever_a_server_sends_becomes_a_tool_that_can_be_used(
    parameters: object, output: object, annotations: object
) -> None:
    try:
        found = tool(inputSchema=parameters, outputSchema=output, annotations=annotations)
    except HiddenCharacter:
        return
    definition = found.definition
    definition.parameters.check()
    assert definition.parameters.value["type"] == "object"
    if definition.output_schema is not None:
        definition.output_schema.check()
    again = tool(inputSchema=definition.parameters.value)
    assert again.definition.parameters == definition.parameters, "what is kept is kept again as it is"


@pytest.mark.requirement("C-8-sanitised")
@given(JSON_VALUES)
def test_whatever_a_server_sends_is_a_tool_or_refused(raw: object) -> None:
    try:
        read_tool(raw, "clock")
    except InvalidDefinition:
        return


@pytest.mark.requirement("C-8-annotations")
def test_an_annotation_is_kept_where_it_is_a_plain_value_and_is_no_loss_elsewhere() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "x-order": 1, "x-deep": {"any": ["thing"]}}},
        "x-fastmcp-wrap-result": True,
        "x-long": "a" * 257,
        "x-seen": "as\u200b you see",
        "nonsense": 1,
    }
    found = tool(outputSchema=schema)
    assert found.definition.output_schema is not None
    assert found.definition.output_schema.value == {
        "type": "object",
        "properties": {"a": {"type": "integer", "x-order": 1}},
        "x-fastmcp-wrap-result": True,
    }
    assert found.cut == ("/outputSchema/nonsense: no keyword of JSON Schema",)


def test_a_provider_cleans_the_definition_of_a_stranger_and_hears_what_was_removed() -> None:
    parameters: dict[str, object] = {"type": "object", "properties": {"a": {"type": "string", "made_up": 1}}}
    definition, removed = foreign_definition(name="t", description="Does\u200b it.", parameters=parameters)
    assert (definition.description, definition.parameters.value["properties"]) == (
        "Does it.",
        {"a": {"type": "string"}},
    )
    assert removed == (
        "/description: invisible characters",
        "/parameters/properties/a/made_up: no keyword of JSON Schema",
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "a b"}, "not a valid name for a provider's tool"),
        ({"parameters": {"type": "array"}}, "is of type 'array', not object"),
        ({"parameters": {"type": "object", "properties": {"a\u200b": {}}}}, "hidden character"),
    ],
)
def test_a_strangers_definition_that_cannot_be_listed_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message):
        foreign_definition(**{"name": "t", "description": "", "parameters": {"type": "object"}, **wrong})
