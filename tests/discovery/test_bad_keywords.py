"""One keyword that a schema cannot have: it is converted or removed, and everything else of the schema stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolplug.catalog.schema import Schema
from toolplug.catalog.schema_walk import at_pointer
from toolplug.foreign.definitions import foreign_definition
from toolplug.parts.mcp.discovery.listing import read_tool

Json = dict[str, Any]

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

KEEP: Json = {"type": "object", "properties": {"keep": {"type": "string", "minLength": 1}}, "required": ["keep"]}


def kept(schema: Json, **more: Any) -> tuple[Json, tuple[str, ...]]:
    """What is kept of a property of this schema, next to one that is valid, and the report."""
    whole = {**KEEP, **more, "properties": {**KEEP["properties"], "n": schema}}
    found = read_tool({"name": "t", "inputSchema": whole}, "server")
    value = found.definition.parameters.value
    properties = value.pop("properties")
    found.definition.parameters.check()
    assert properties.pop("keep") == KEEP["properties"]["keep"]
    assert {key: value[key] for key in KEEP if key != "properties"} == {"type": "object", "required": ["keep"]}
    return properties.pop("n"), tuple(line.removeprefix("/inputSchema/properties/n") for line in found.cut)


NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
SIZES = (
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("minContains", "maxContains"),
)
FLAGS = ("uniqueItems", "deprecated", "readOnly", "writeOnly")

REFUSED = [
    *((keyword, value) for keyword in NUMBERS for value in ("5", None, [1], {})),
    *((keyword, value) for keyword in SIZES for value in ("5", None, -1, 1.5, True)),
    *((keyword, value) for keyword in FLAGS for value in ("true", None, 1)),
    ("multipleOf", 0),
    ("multipleOf", -2),
    *((keyword, value) for keyword in ("title", "description", "$comment", "format") for value in (5, None, ["x"])),
    *(("type", value) for value in (None, 5, "strin", "any", [], ["string", "strin"], {"a": 1})),
    *(("required", value) for value in (None, True, "a", {"a": True})),
    *(("enum", value) for value in (None, "a", {"a": 1})),
    ("pattern", 5),
    ("pattern", "("),
    ("pattern", "(?<name>a)(?=b)"),
    *(("properties", value) for value in (None, [], "a")),
    *(("$defs", value) for value in (None, [])),
    ("patternProperties", None),
    ("dependentRequired", {"a": "b"}),
    ("dependentRequired", ["a"]),
    ("dependentSchemas", []),
    *(("anyOf", value) for value in (None, [], {}, "x")),
    *(("prefixItems", value) for value in ([], {}, None)),
    ("examples", "x"),
    ("contentEncoding", 5),
    ("contentMediaType", ["text/plain"]),
    ("$anchor", "1 x"),
    ("$anchor", 5),
    ("$dynamicAnchor", ""),
    ("$id", "http://["),
    ("$id", "a b"),
    ("$id", "#x"),
    ("$id", 7),
    ("$schema", 5),
    ("$schema", "http://json-schema.org/draft-03/schema#"),
    ("$ref", 5),
    ("$ref", "#/$defs/none"),
    ("$ref", "https://elsewhere.example/schema"),
    ("$recursiveAnchor", 5),
    ("nullable", True),
    ("discriminator", {"propertyName": "a"}),
    ("exclusiveMinimum", True),
]


@pytest.mark.requirement("C-8-bad-keyword")
@pytest.mark.parametrize(("keyword", "value"), REFUSED, ids=str)
@pytest.mark.parametrize("around", [{}, {"$schema": DRAFT_7}], ids=["newest", "draft 7"])
def test_a_keyword_that_is_refused_goes_alone_and_is_reported(keyword: str, value: object, around: Json) -> None:
    rest = {"description": "How many.", "items": {"type": "integer"}, "default": 3}
    rest.pop(keyword, None)
    found, report = kept({keyword: value, **rest}, **around)
    if report:  # a later keyword has no meaning in draft 7, where any value of it is as good
        assert found == rest
        assert [line.partition(": ")[0] for line in report] == [f"/{keyword}"]
    else:
        assert found == {keyword: value, **rest}
        jsonschema_rs.meta.validate({**around, **found})
        assert around


@pytest.mark.requirement("C-8-bad-keyword")
@pytest.mark.parametrize(
    ("schema", "becomes", "reported"),
    [
        (
            {"type": "integer", "exclusiveMinimum": True, "minimum": 0, "maximum": 9},
            {"type": "integer", "exclusiveMinimum": 0, "maximum": 9},
            (),
        ),
        ({"exclusiveMaximum": True, "maximum": 1.5}, {"exclusiveMaximum": 1.5}, ()),
        ({"exclusiveMinimum": False, "minimum": 0}, {"minimum": 0}, ()),
        ({"exclusiveMaximum": True, "maximum": "9"}, {}, ("/exclusiveMaximum", "/maximum")),
        (
            {"type": "array", "items": [{"type": "integer"}, {"minimum": "x"}]},
            {"type": "array", "prefixItems": [{"type": "integer"}, {}]},
            ("/items/1/minimum",),
        ),
        (
            {"items": [{"type": "integer"}], "additionalItems": False},
            {"prefixItems": [{"type": "integer"}], "items": False},
            (),
        ),
        ({"items": []}, {}, ()),
        ({"items": [{}], "prefixItems": [True]}, {"prefixItems": [True]}, ("/items",)),
        ({"required": ["a", "a", "b"]}, {"required": ["a", "b"]}, ("/required",)),
        ({"required": ["a", None, "b"]}, {"required": ["a", "b"]}, ("/required",)),
        ({"type": ["string", "string"]}, {"type": ["string"]}, ("/type",)),
        (
            {"minimum": "1", "maxItems": -1, "title": "N", "items": {"pattern": "[", "format": "date"}},
            {"title": "N", "items": {"format": "date"}},
            ("/items/pattern", "/minimum", "/maxItems"),
        ),
    ],
)
def test_what_another_draft_writes_otherwise_is_converted(schema: Json, becomes: Json, reported: tuple[str]) -> None:
    found, report = kept(schema)
    assert found == becomes
    assert tuple(line.partition(": ")[0] for line in report) == reported


@pytest.mark.requirement("C-8-bad-keyword")
@pytest.mark.parametrize(
    ("schema", "becomes"),
    [
        ({"exclusiveMinimum": 5}, {"minimum": 5, "exclusiveMinimum": True}),
        ({"minimum": 5, "exclusiveMinimum": True}, {"minimum": 5, "exclusiveMinimum": True}),
        ({"minimum": 5, "exclusiveMinimum": True, "maxItems": -1}, {"minimum": 5, "exclusiveMinimum": True}),
        ({"exclusiveMaximum": True, "title": "N"}, {"title": "N"}),
        (
            {"properties": {"a": True}, "not": False, "anyOf": [True], "additionalProperties": False},
            {"properties": {"a": {}}, "not": {"not": {}}, "anyOf": [{}], "additionalProperties": False},
        ),
        ({"required": [], "title": "N"}, {"title": "N"}),
    ],
)
def test_a_schema_of_draft_4_is_repaired_by_its_own_rules(schema: Json, becomes: Json) -> None:
    found, _ = kept(schema, **{"$schema": DRAFT_4})
    assert found == becomes


@pytest.mark.requirement("C-8-bad-keyword")
def test_patterns_over_the_limits_of_one_schema_go_alone() -> None:
    found, report = kept({"anyOf": [{"pattern": f"^{n}"} for n in range(70)]})
    assert found["anyOf"] == [{"pattern": f"^{n}"} for n in range(64)] + [{}] * 6
    assert [line.partition(": ")[0] for line in report] == [f"/anyOf/{n}/pattern" for n in range(64, 70)]


@pytest.mark.requirement("C-8-bad-keyword")
def test_references_that_lead_back_to_themselves_are_removed() -> None:
    definitions = {
        "a": {"$ref": "#/$defs/b", "title": "A"},
        "b": {"allOf": [{"$ref": "#/$defs/a"}], "title": "B"},
        "self": {"anyOf": [{"$ref": "#/$defs/self"}, {"type": "string"}]},
        "tree": {"properties": {"next": {"$ref": "#/$defs/tree"}}},
    }
    schema = {**KEEP, "allOf": [{"$ref": f"#/$defs/{name}"} for name in definitions], "$defs": definitions}
    found = read_tool({"name": "t", "inputSchema": schema}, "server")
    assert found.definition.parameters.value == {
        **schema,
        "$defs": {
            "a": {"title": "A"},
            "b": {"allOf": [{}], "title": "B"},
            "self": {"anyOf": [{}, {"type": "string"}]},
            "tree": {"properties": {"next": {"$ref": "#/$defs/tree"}}},
        },
    }
    assert {line.partition(": ")[0] for line in found.cut} == {
        f"/inputSchema/$defs/{place}/$ref" for place in ("a", "b/allOf/0", "self/anyOf/0")
    }


@pytest.mark.requirement("C-8-bad-keyword")
def test_a_reference_to_another_place_of_the_document_is_kept() -> None:
    components = {
        "In": {**KEEP, "properties": {**KEEP["properties"], "more": {"$ref": "#/components/schemas/More"}}},
        "More": {"type": "array", "items": {"$ref": "#/components/schemas/More"}, "x": 1},
    }
    found = read_tool(
        {"name": "t", "inputSchema": {"$ref": "#/components/schemas/In", "components": {"schemas": components}}}, "s"
    )
    more = {"type": "array", "items": {"$ref": "#/$defs/More"}}
    value = found.definition.parameters.value
    assert (value["required"], value["properties"]["keep"]) == (["keep"], KEEP["properties"]["keep"])
    assert (value["properties"]["more"], value["$defs"]["More"]) == ({"$ref": "#/$defs/More"}, more)
    assert found.cut == ("/inputSchema/components/schemas/More/x: no keyword of JSON Schema",)
    assert found.definition.parameters.is_valid({"keep": "a", "more": [[[]]]})
    assert not found.definition.parameters.is_valid({"keep": "a", "more": [1]})


def test_a_place_that_is_moved_does_not_replace_a_definition() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/models/x y"}, "b": {"$ref": "#/$defs/x_y"}, "c": {"$ref": "#/models/x%20y"}},
        "$defs": {"x_y": {"type": "integer"}},
        "models": {"x y": {"type": "string"}},
    }
    value = read_tool({"name": "t", "inputSchema": schema}, "s").definition.parameters.value
    assert value["$defs"] == {"x_y": {"type": "integer"}, "x_y_2": {"type": "string"}}
    assert [value["properties"][name]["$ref"] for name in "abc"] == ["#/$defs/x_y_2", "#/$defs/x_y", "#/$defs/x_y_2"]


@pytest.mark.requirement("C-8-default-optional")
def test_a_required_property_with_a_default_is_optional() -> None:
    options = {"type": "object", "properties": {"deep": {"default": None}}, "required": ["deep"]}
    properties = {
        "scale": {"enum": ["css", "device"], "default": "css"},
        "path": {"type": "string"},
        "options": options,
    }
    schema = {"type": "object", "properties": properties, "required": ["scale", "path", "options"]}
    found = read_tool({"name": "t", "inputSchema": schema, "outputSchema": schema}, "server")
    value = found.definition.parameters.value
    assert (value["required"], value["properties"]["options"].get("required")) == (["path", "options"], None)
    assert found.definition.parameters.refusals({"path": "a", "options": {}}) == ()
    assert found.definition.output_schema is not None
    assert found.definition.output_schema.value == schema, "the server's own results have it"
    assert found.cut == ()


@pytest.mark.requirement("I32-mcp-tool-meta")
@pytest.mark.parametrize(
    ("sent", "kept", "cut"),
    [
        ({"a": {"b\u202e": ["c"]}, "toolplug/x": 1, "io.modelcontextprotocol/y": 2}, {"a": {"b": ["c"]}}, ()),
        ({"a": "x" * 16_380}, {}, ("/_meta: is no object of at most 16384 bytes of JSON",)),
        ({"a": 1 << 70}, {}, ("/_meta: is no object of at most 16384 bytes of JSON",)),
        ([1], {}, ("/_meta: is no object of at most 16384 bytes of JSON",)),
        (None, {}, ()),
    ],
)
def test_the_meta_of_a_tool_is_cleaned_and_bounded(sent: object, kept: object, cut: tuple[str, ...]) -> None:
    plain = {"name": "t", "inputSchema": {"type": "object"}}
    tool = read_tool({**plain, "_meta": sent}, "s")
    assert (tool.definition.meta, tool.cut) == (kept, cut)
    assert tool.definition.ref.digest == read_tool(plain, "s").definition.ref.digest


# A valid schema in which one keyword has become another value.

LEAVES = st.sampled_from(
    [
        *({"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "minLength": 1, "maxLength": 9}),
        *({"enum": ["a", 1]}, {"const": 1}, {"type": "number", "multipleOf": 0.5, "description": "N"}),
        *({"$ref": "#/$defs/text"}, {"type": ["string", "null"], "format": "date", "default": None}, {}),
    ]
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(
            lambda named: {"type": "object", "properties": named, "required": sorted(named)}
        ),
        inner.map(lambda item: {"type": "array", "items": item, "minItems": 1}),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: {"anyOf": items, "title": "One of"}),
        st.lists(inner, min_size=1, max_size=2).map(lambda items: {"prefixItems": items, "maxItems": 2}),
        inner.map(lambda item: {"additionalProperties": item, "minProperties": 1}),
    ),
    max_leaves=8,
)
WRONG = st.sampled_from([None, "x", "5", -1.5, -3, True, [], [None], {"a": None}, [[1]], 2**70, ["string", "string"]])


def keywords(schema: object, pointer: str = "") -> Iterator[tuple[Json, str, str]]:
    """Every keyword below the top that holds no schema: its schema, its name and its pointer."""
    for keyword, value in schema.items() if isinstance(schema, dict) else ():
        at = f"{pointer}/{keyword}"
        match keyword:
            case "properties" | "$defs":
                for name, inner in value.items():
                    yield from keywords(inner, f"{at}/{name}")
            case "anyOf" | "prefixItems":
                for number, inner in enumerate(value):
                    yield from keywords(inner, f"{at}/{number}")
            case "items" | "additionalProperties":
                yield from keywords(value, at)
            case _ if pointer:
                yield schema, keyword, at
            case _:
                pass


@pytest.mark.requirement("C-8-bad-keyword")
@given(st.data(), SCHEMAS, WRONG)
def test_whatever_one_keyword_has_become_the_rest_of_the_schema_stays(
    data: st.DataObject, inner: Json, wrong: object
) -> None:
    definitions = {"text": {"type": "string", "title": "T"}}
    valid = {**KEEP, "properties": {"n": inner, **KEEP["properties"]}, "$defs": definitions}
    schema = Schema(valid).value  # in which no part is shared
    holder, keyword, at = data.draw(st.sampled_from(list(keywords(schema))))
    holder[keyword] = wrong
    found, removed = foreign_definition(name="t", description="", parameters=schema)
    found.parameters.check()

    rest = found.parameters.value
    place = at_pointer(rest, at.rpartition("/")[0])
    assert isinstance(place, dict)
    left = place.pop(keyword, "removed")
    del holder[keyword]
    assert rest == schema
    assert all(line.startswith(f"/parameters{at}: ") for line in removed)
    assert len(removed) == (left != Schema({"const": wrong}).value["const"]), "what is lost is reported, and only that"
