"""A catalog's tools as an OpenAPI document: whatever their schemas are, it is valid and means what they mean."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from schemathesis.specs.openapi.definitions import OPENAPI_31
from tests.plain_tools import plain_tool

from toolplug.catalog.catalog import Catalog, merged
from toolplug.catalog.definition import Note, ToolDefinition
from toolplug.catalog.plan import Tool
from toolplug.catalog.render import describe
from toolplug.catalog.schema import Schema
from toolplug.catalog.schema_walk import at_pointer, subschemas
from toolplug.errors import InvalidDefinition
from toolplug.http import tools_document
from toolplug.http.tools_document import (
    MAX_INLINED,
    PARTS,
    TEXT_ANSWER,
    EncodedOperations,
    ToolsDocument,
    assemble,
    head_of,
    operations_of,
)

pytestmark = pytest.mark.requirement("I32-tools-document")

Json = dict[str, Any]

ITEM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CLOSED = {
    **ITEM,
    "additionalProperties": False,
    "properties": {"n": {"type": "integer"}, "parts": PARTS},
}
"""The schema of an answer that may have parts."""
OR_TEXT = {"type": "object", "anyOf": [ITEM, TEXT_ANSWER]}
"""The schema of an answer that is an item, or the text of one that is too long."""
TREE = {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Tree"}, "leaf": {"$ref": "#/$defs/Leaf"}}}

NAMES = ("x", "p", "$ref", "$defs", "a/b", "~1", "b c", "é%")
PLACES = ("#/$defs/A", "#/$defs/b%20c", "#/$defs/a~1b", "#/definitions/A", "#/$defs/A/properties/x", "#/properties/p")
OTHERS = ("#", "#at", "https://example.org/s#/$defs/A", "s", "#/$defs/Never", "#/$defs/A/$defs/N", "#/x-other/deep")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
LEAVES = st.one_of(
    st.booleans(),
    st.sampled_from([{}, {"type": "string"}, {"type": "integer"}, {"type": "array"}, {"type": ["object", "null"]}]),
    st.builds(lambda place: {"$ref": place}, st.sampled_from((*PLACES, *OTHERS))),
    st.builds(lambda place: {"$ref": place, "type": "object"}, st.sampled_from(PLACES)),
    st.builds(lambda place: {"$dynamicRef": place}, st.sampled_from(("#", "#/$defs/A", "#at"))),
    st.builds(lambda value: {"enum": [value, {"$ref": "#/$defs/A"}]}, VALUES),
    st.builds(lambda value: {"default": value, "const": {"$ref": "#/nowhere"}}, VALUES),
    st.builds(lambda kind: {"$anchor": "at", "type": kind}, st.sampled_from(["integer", "object"])),
)


def _nest(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    members = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    return st.one_of(
        st.builds(lambda of: {"type": "object", "properties": of}, members),
        st.builds(lambda of, needed: {"properties": of, "required": needed}, members, st.just(["x"])),
        st.builds(lambda of, more: {"properties": of, "$defs": more, "additionalProperties": False}, members, members),
        st.builds(lambda of, n: {"items": of, "$defs": {"N": n}}, inner, inner),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
        st.builds(
            lambda of: {"$id": "https://example.org/inner", "$defs": {"A": {"type": "string"}}, "not": of}, inner
        ),
        st.builds(lambda of: {"prefixItems": [of]}, inner),
    )


SCHEMAS = st.recursive(LEAVES, _nest, max_leaves=5)


@st.composite
def documents(draw: st.DrawFn) -> Json:
    """The schema of an object, with definitions and references of every manner, of this draft or an older one."""
    document: Json = {
        "type": "object",
        "properties": draw(st.dictionaries(st.sampled_from(NAMES), SCHEMAS, max_size=3)),
    }
    definitions = draw(st.dictionaries(st.sampled_from(("A", "b c", "a/b", "A.b", "")), SCHEMAS, max_size=3))
    if definitions:
        document["$defs"] = {**definitions, "Never": False}
    if draw(st.booleans()):
        document["definitions"] = {"A": draw(SCHEMAS)}
    if draw(st.booleans()):
        document["$id"] = "https://example.org/s"
    if draw(st.booleans()):
        document["x-other"] = {"deep": draw(SCHEMAS)}
    return document


def of_document(document: Json, schema: Mapping[str, Any]) -> Json:
    """A schema of the document as one of its own, which its references lead through."""
    return {**schema, "components": document["components"]}


def references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (schema[name] for name in ("$ref", "$dynamicRef", "$recursiveRef") if name in schema)
        for _, _, inner in subschemas(schema):
            yield from references(inner)


def schemas_in(document: Json) -> Iterator[Json]:
    yield from document["components"]["schemas"].values()
    for item in document["paths"].values():
        yield item["post"]["requestBody"]["content"]["application/json"]["schema"]
        yield item["post"]["responses"]["200"]["content"]["application/json"]["schema"]


def arguments_of(document: Json, wire: str) -> Json:
    operation = document["paths"][f"/v1/tools/{wire}"]["post"]
    return of_document(document, operation["requestBody"]["content"]["application/json"]["schema"])


def check(document: Json) -> None:
    """The document is OpenAPI 3.1, its schemas are valid, and each reference leads to one of its components."""
    jsonschema_rs.validate(OPENAPI_31, document)
    for schema in schemas_in(document):
        jsonschema_rs.validator_for(of_document(document, schema))
        for reference in references(schema):
            assert reference.startswith("#/components/schemas/"), reference
            found = at_pointer(document, unquote(reference[1:]))
            assert isinstance(found, dict | bool), reference
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))
    assert document["paths"].keys() == {f"/v1/tools/{name}" for name in ids}


def written(*tools: Tool) -> tuple[Catalog, Json]:
    """A catalog of the tools that do not clash, and its document."""
    catalog = merged([Catalog([tool]) for tool in tools])[0]
    text = assemble(head_of("http://localhost", True), [operations_of(catalog.definitions())], True)
    document = json.loads(text)
    check(document)
    return catalog, document


def is_looked_up_otherwise(schema: Schema) -> bool:
    """Whether a validator of the original follows references by what the schemas of a value are, or by an anchor."""
    return any(word in schema.text for word in (b'"$dynamicRef"', b'"$anchor"', b'"$id":"https://example.org/inner"'))


@pytest.mark.slow
@given(documents(), documents(), st.lists(VALUES, max_size=5))
def test_the_document_of_any_tools_is_valid_and_admits_what_their_own_schemas_admit(
    first: Json, second: Json, values: list[object]
) -> None:
    tools: list[Tool] = []
    for name, schema in (("kb.find", first), ("kb__find", second), ("stream", ITEM), ("find", second)):
        try:
            tool = plain_tool(name, parameters=schema, output_schema=schema)
            tool.definition.parameters.check()
        except InvalidDefinition:
            continue
        tools.append(tool)
    assume(len(tools) > 1)
    catalog, document = written(*tools)
    for definition in catalog.definitions():
        moved = jsonschema_rs.validator_for(arguments_of(document, definition.wire))
        own = definition.parameters
        for value in [*values, {}, {"x": "a"}, {"x": 1, "p": {"x": {}}}, {"p": None}]:
            assert is_looked_up_otherwise(own) or moved.is_valid(value) == own.is_valid(value), (own, value)


def test_definitions_become_components_named_by_tool_and_references_lead_to_them() -> None:
    tree = {"type": "object", "properties": {"at": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": TREE, "Leaf": ITEM}}
    _, document = written(plain_tool("kb.put", parameters=tree), plain_tool("kb.get", parameters=tree))
    assert set(document["components"]["schemas"]) == {"kb__put.Tree", "kb__get.Tree"}
    assert document["components"]["schemas"]["kb__put.Tree"]["properties"] == {
        "inner": {"$ref": "#/components/schemas/kb__put.Tree"},
        "leaf": ITEM,
    }
    operation = document["paths"]["/v1/tools/kb__put"]["post"]
    assert (operation["operationId"], operation["tags"]) == ("kb__put", ["kb"])
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"type": "object", "properties": {"at": {"$ref": "#/components/schemas/kb__put.Tree"}}}


@pytest.mark.requirement("I32-tools-document-inlined")
def test_definitions_are_in_place_where_some_importers_follow_no_reference() -> None:
    places = {"additionalProperties": {"$ref": "#/$defs/Place"}, "prefixItems": [{"$ref": "#/$defs/Place"}]}
    held = {"Place": {"type": "object", "patternProperties": {"^x": {"$ref": "#/$defs/Leaf"}}}, "Leaf": ITEM}
    _, document = written(plain_tool("kb.put", parameters={"type": "object", **places, "$defs": held}))
    place = {"type": "object", "patternProperties": {"^x": ITEM}}
    described = {"type": "object", "additionalProperties": place, "prefixItems": [place]}
    body = document["paths"]["/v1/tools/kb__put"]["post"]["requestBody"]["content"]
    assert body["application/json"]["schema"] == described
    assert document["components"]["schemas"] == {}


@pytest.mark.requirement("I32-tools-document-inlined")
@pytest.mark.parametrize(
    "more",
    [
        {"Other": {"$ref": "#/$defs/Leaf/properties/n"}},
        {"Other": {"$ref": "#"}},
        {"Other": {"$id": "https://other.example/", "$ref": "#/$defs/Leaf"}},
        {"Other": True},
        {f"D{number}": ITEM for number in range(MAX_INLINED)},
    ],
    ids=["inside", "whole", "id", "boolean", "many"],
)
def test_definitions_that_cannot_be_in_place_are_components(more: Json) -> None:
    parameters = {"type": "object", "properties": {"at": {"$ref": "#/$defs/Leaf"}}, "$defs": {"Leaf": ITEM, **more}}
    _, document = written(plain_tool("put", parameters=parameters))
    assert document["components"]["schemas"]["put.Leaf"] == ITEM


def test_a_schema_that_refers_to_itself_becomes_a_component() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#"}, "size": {"$ref": "#/properties/next/properties/n"}}}
    node["properties"]["next"] |= {"properties": {"n": {"type": "integer"}}}
    _, document = written(plain_tool("walk", parameters=node, output_schema=node))
    assert set(document["components"]["schemas"]) == {"walk.arguments", "walk.result"}
    operation = document["paths"]["/v1/tools/walk"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/walk.arguments"}
    assert document["components"]["schemas"]["walk.arguments"]["properties"] == {
        "next": {"$ref": "#/components/schemas/walk.arguments", "properties": {"n": {"type": "integer"}}},
        "size": {"$ref": "#/components/schemas/walk.arguments/properties/next/properties/n"},
    }


def test_names_and_values_that_look_like_references_stay_as_they_are() -> None:
    properties = {
        "$ref": {"type": "string"},
        "value": {"const": {"$ref": "#/$defs/A"}},
        "either": {"enum": [{"$ref": "#/$defs/A"}, {"$id": "x"}]},
        "filled": {"default": {"$schema": "y"}, "examples": [{"$ref": 1}]},
        "real": {"$ref": "#/$defs/A"},
    }
    _, document = written(
        plain_tool("look", parameters={"type": "object", "properties": properties, "$defs": {"A": ITEM}})
    )
    body = arguments_of(document, "look")["properties"]
    assert body == {**properties, "real": {"$ref": "#/components/schemas/look.A"}}


def test_an_older_draft_is_written_in_the_newest_and_without_its_own_address() -> None:
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.org/s",
        "type": "object",
        "properties": {
            "pair": {"type": "array", "items": [{"$ref": "#/definitions/n"}, {"$ref": "https://example.org/s#at"}]},
            "list": {"type": "array"},
        },
        "definitions": {"n": {"$id": "#at", "type": "integer"}},
    }
    _, document = written(plain_tool("pair", parameters=old))
    assert document["components"]["schemas"] == {"pair.n": {"type": "integer"}}
    named = {"$ref": "#/components/schemas/pair.n"}
    assert arguments_of(document, "pair") == {
        "type": "object",
        "properties": {
            "pair": {"type": "array", "prefixItems": [named, named]},
            "list": {"type": "array", "items": {}},
        },
        "components": document["components"],
    }


@pytest.mark.parametrize(
    ("output", "described"),
    [
        (None, {"type": "object"}),
        ({"type": "integer"}, TEXT_ANSWER),
        ({"type": "array", "items": {"type": "string"}}, TEXT_ANSWER),
        (ITEM, OR_TEXT),
        ({"anyOf": [ITEM, {"type": "null"}]}, {"type": "object"}),
        ({**ITEM, "additionalProperties": False}, {"type": "object", "anyOf": [CLOSED, TEXT_ANSWER]}),
        ({**ITEM, "additionalProperties": False, "maxProperties": 1}, "as it is"),
        ({**ITEM, "additionalProperties": False, "properties": {"n": {}, "parts": {}}}, "as it is"),
        ({"$ref": "#/$defs/Item", "$defs": {"Item": ITEM}}, OR_TEXT),
        ({"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}}, TEXT_ANSWER),
    ],
)
def test_the_answer_is_described_as_it_is_given(output: Json | None, described: Json | str) -> None:
    _, document = written(plain_tool("count", output_schema=output))
    success = document["paths"]["/v1/tools/count"]["post"]["responses"]["200"]
    expected = {"type": "object", "anyOf": [output, TEXT_ANSWER]} if described == "as it is" else described
    assert success["content"]["application/json"]["schema"] == expected


def test_an_operation_says_of_its_tool_what_a_model_is_told() -> None:
    found = plain_tool(
        "kb.find", description="Find a page.", parameters=ITEM, title="Find", notes=(Note("Mind", "the gap"),)
    )
    definition = found.definition
    for needed, parameters in ((True, definition.parameters), (False, Schema({"type": "object"}))):
        operations = operations_of([replace(definition, parameters=parameters)])
        document = json.loads(assemble(head_of("http://localhost", False), [operations], False))
        check(document)
        operation = document["paths"]["/v1/tools/kb__find"]["post"]
        assert operation["requestBody"]["required"] is needed
        assert operation["summary"] == "Find"
        assert operation["description"] == describe(definition)
        assert "the gap" in operation["description"]
    assert document["info"]["version"] == version("toolplug")


@pytest.mark.anyio
async def test_the_operations_of_a_catalog_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def count(definitions: Iterable[ToolDefinition]) -> EncodedOperations:
        encoded.append(1)
        return operations_of(definitions)

    monkeypatch.setattr(tools_document, "operations_of", count)
    documents, catalog = ToolsDocument(), Catalog([plain_tool("a")])
    head = head_of("http://localhost", False)
    assert await documents.write(catalog, head, False) == await documents.write(catalog, head, False)
    assert encoded == [1]
