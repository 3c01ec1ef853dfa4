"""The four dialects in which model APIs read tools, and the notes in them."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter
from tests.plain_tools import plain_tool

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.definition import Note, ToolDefinition, ToolHints
from toolplug.catalog.render import Dialect, describe, fragment

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic", "mcp")

QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "what for: “é”"}},
    "required": ["query"],
    "additionalProperties": False,
}
ANSWER = {"type": "object", "properties": {"hits": {"type": "array"}}}
FIND = plain_tool(
    "find",
    description="Find “é”.",
    parameters=QUERY,
    output_schema=ANSWER,
    hints=ToolHints(read_only=True, destructive=False),
)
PLAIN = plain_tool("plain")
CATALOG = Catalog([FIND, PLAIN]).prefixed("fs")
NOTHING = {"type": "object", "properties": {}}


def rendered(catalog: Catalog, dialect: Dialect) -> object:
    return json.loads(catalog.render(dialect))


@pytest.mark.requirement("I2-2-render", "C-1-wire-in-listings")
def test_chat_completions_tools() -> None:
    assert rendered(CATALOG, "chat") == [
        {
            "type": "function",
            "function": {"name": "fs__find", "description": "Find “é”.", "parameters": QUERY},
        },
        {"type": "function", "function": {"name": "fs__plain", "description": "", "parameters": NOTHING}},
    ]


@pytest.mark.parametrize(
    ("schema", "rendered_as"),
    [
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["array", "null"], "minItems": 1}, {"type": ["array", "null"], "minItems": 1, "items": {}}),
        ({"anyOf": [{"items": {"type": "array"}}]}, {"anyOf": [{"items": {"type": "array", "items": {}}}]}),
        ({"type": "array", "items": False}, {"type": "array", "items": False}),
        ({"type": "array", "unevaluatedItems": False}, {"type": "array", "unevaluatedItems": False}),
        ({"enum": ["array"], "maximum": 1 << 64}, {"enum": ["array"], "maximum": 1 << 64}),
        ({"properties": {"type": {"const": "array"}}}, {"properties": {"type": {"const": "array"}}}),
    ],
)
def test_an_array_has_items_for_models(schema: object, rendered_as: object) -> None:
    parameters = {"type": "object", "properties": {"a": schema}}
    catalog = Catalog([plain_tool("t", parameters=parameters)])
    for dialect, key in (("responses", "parameters"), ("anthropic", "input_schema"), ("mcp", "inputSchema")):
        [tool] = json.loads(catalog.render(dialect))
        assert tool[key]["properties"]["a"] == (schema if dialect == "mcp" else rendered_as)


@pytest.mark.requirement("I2-2-render", "C-1-wire-in-listings")
def test_responses_tools() -> None:
    assert rendered(CATALOG, "responses") == [
        {
            "type": "function",
            "name": "fs__find",
            "description": "Find “é”.",
            "parameters": QUERY,
            "strict": False,
        },
        {"type": "function", "name": "fs__plain", "description": "", "parameters": NOTHING, "strict": False},
    ]


@pytest.mark.requirement("I2-2-render", "C-1-wire-in-listings")
def test_anthropic_tools() -> None:
    assert rendered(CATALOG, "anthropic") == [
        {"name": "fs__find", "description": "Find “é”.", "input_schema": QUERY},
        {"name": "fs__plain", "description": "", "input_schema": NOTHING},
    ]


@pytest.mark.requirement("I2-2-render", "C-1-wire-in-listings")
def test_mcp_tools_have_the_canonical_name_beside_the_wire_name() -> None:
    assert rendered(CATALOG, "mcp") == [
        {
            "name": "fs__find",
            "description": "Find “é”.",
            "inputSchema": QUERY,
            "outputSchema": ANSWER,
            "annotations": {"readOnlyHint": True, "destructiveHint": False},
            "_meta": {"toolplug/name": "fs.find"},
        },
        {
            "name": "fs__plain",
            "description": "",
            "inputSchema": NOTHING,
            "_meta": {"toolplug/name": "fs.plain"},
        },
    ]


@pytest.mark.requirement("I2-2-render")
def test_an_mcp_tool_under_its_own_name_says_no_more_than_there_is() -> None:
    hints = ToolHints(read_only=False, idempotent=True, destructive=True, internal=True)
    icon = {"src": "https://example.com/plain.png"}
    plain = plain_tool("plain", hints=hints, title="A plain\u200b tool", icons=(icon,))
    assert rendered(Catalog([plain]), "mcp") == [
        {
            "name": "plain",
            "title": "A plain tool",
            "icons": [icon],
            "description": "",
            "inputSchema": NOTHING,
            "annotations": {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True},
        }
    ]


@pytest.mark.requirement("I2-2-render")
def test_the_clients_of_chat_completions_and_responses_take_the_listings() -> None:
    TypeAdapter(list[ChatCompletionFunctionToolParam]).validate_json(CATALOG.render("chat"), strict=True)
    TypeAdapter(list[FunctionToolParam]).validate_json(CATALOG.render("responses"), strict=True)


@pytest.mark.requirement("I2-2-render")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_empty_catalog_is_an_empty_array(dialect: Dialect) -> None:
    assert EMPTY_CATALOG.render(dialect) == b"[]"


@pytest.mark.requirement("I2-2-render", "C-1-order-stable")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_bytes_are_kept_and_equal_catalogs_give_equal_bytes(dialect: Dialect) -> None:
    assert CATALOG.render(dialect) is CATALOG.render(dialect)
    assert Catalog([FIND, PLAIN]).prefixed("fs").render(dialect) == CATALOG.render(dialect)
    definition = FIND.definition
    assert fragment(definition, dialect) is fragment(definition, dialect)


@pytest.mark.requirement("C-1-order", "C-1-order-stable")
@given(order=st.permutations(["d", "a", "c", "b"]))
def test_tools_are_listed_in_the_order_in_which_they_were_given(order: list[str]) -> None:
    listed = json.loads(Catalog(plain_tool(name) for name in order).render("anthropic"))
    assert [tool["name"] for tool in listed] == order


@pytest.mark.requirement("I2-2-render")
def test_the_schema_is_sent_as_its_author_wrote_it_key_by_key() -> None:
    parameters = {"type": "object", "required": ["b"], "properties": {"b": {"title": "B", "type": "string"}, "a": {}}}
    listed = Catalog([plain_tool("find", parameters=parameters)]).render("anthropic")
    assert json.dumps(parameters, separators=(",", ":")).encode() in listed


def noted(*notes: Note, description: str = "Find.") -> ToolDefinition:
    return plain_tool("find", description=description, notes=notes).definition


@pytest.mark.requirement("I2-2-render", "C-7-notes-text")
def test_notes_stand_below_the_description_one_line_each() -> None:
    definition = noted(Note("units", "Metric only."), Note("cost", "Ask before more than 3 calls."))
    assert describe(definition) == (
        "Find.\n\n### Additional Tool Notes\n\n• **units**: Metric only.\n• **cost**: Ask before more than 3 calls."
    )


@pytest.mark.requirement("I2-2-render", "C-7-notes-text", "ANN-format-bare")
def test_notes_without_a_description_stand_alone_and_without_notes_nothing_is_added() -> None:
    assert describe(noted(Note("units", "Metric."), description="")) == (
        "### Additional Tool Notes\n\n• **units**: Metric."
    )
    assert describe(noted()) == "Find."
    assert describe(noted(description="")) == ""


@pytest.mark.requirement("I2-2-render", "C-7-notes-lines")
@pytest.mark.parametrize("line_break", ["\r", "\n", "\r\n", "\v", "\f", "\u0085", "\u2028", "\u2029", "\n\n\r\n\v"])
def test_a_run_of_line_breaks_in_a_note_becomes_one_space_and_its_ends_are_trimmed(line_break: str) -> None:
    definition = noted(Note("units", f"{line_break} one{line_break}two {line_break}"))
    assert describe(definition).endswith("• **units**: one two")


@pytest.mark.requirement("I2-2-render", "C-7-notes-lines")
@given(text=st.text(max_size=60))
def test_a_note_can_never_begin_a_line_of_its_own(text: str) -> None:
    lines = describe(noted(Note("units", text))).splitlines()
    assert lines[:4] == ["Find.", "", "### Additional Tool Notes", ""]
    assert lines[4].startswith("• **units**: ")


@pytest.mark.requirement("I2-2-render", "C-7-notes-text")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_notes_are_in_every_dialect_and_the_same_however_often_they_are_listed(dialect: Dialect) -> None:
    catalog = Catalog([plain_tool("find", description="Find.")]).annotated({"find": [Note("units", "Metric.")]})
    text = json.dumps("Find.\n\n### Additional Tool Notes\n\n• **units**: Metric.", ensure_ascii=False).encode()
    assert text in catalog.render(dialect)
    assert catalog.annotated({"find": [Note("units", "Metric.")]}).render(dialect) == catalog.render(dialect)


def test_an_output_schema_of_no_object_is_that_of_an_object_with_the_result() -> None:
    schema = {
        "$defs": {"N": {"type": "integer"}},
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/N"}, {"$ref": "#"}]},
    }
    definition = ToolDefinition(name="a", output_schema=schema)
    assert json.loads(fragment(definition, "mcp"))["outputSchema"] == {
        "type": "object",
        "properties": {
            "result": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/N"}, {"$ref": "#/properties/result"}]}}
        },
        "required": ["result"],
        "$defs": {"N": {"type": "integer"}},
    }


@pytest.mark.requirement("C-9-lenient")
def test_an_array_without_items_has_them_for_openai_and_stays_as_it_is_elsewhere() -> None:
    array = {"type": "array"}
    schema: dict[str, object] = {
        "type": "object",
        "properties": {
            "any": array,
            "or_none": {"type": ["array", "null"]},
            "inner": {"type": "array", "items": {"anyOf": [array, {"type": "string"}]}},
            "items": {"type": "string"},
            "typed": {"type": "array", "items": {"type": "integer"}},
            "told": {"type": "object", "default": {"type": "array"}},
        },
    }
    tool = ToolDefinition(name="t", parameters=schema)
    properties = orjson.loads(fragment(tool, "chat"))["function"]["parameters"]["properties"]
    assert properties == {
        "any": {**array, "items": {}},
        "or_none": {"type": ["array", "null"], "items": {}},
        "inner": {"type": "array", "items": {"anyOf": [{**array, "items": {}}, {"type": "string"}]}},
        "items": {"type": "string"},
        "typed": {"type": "array", "items": {"type": "integer"}},
        "told": {"type": "object", "default": {"type": "array"}},
    }
    assert orjson.loads(fragment(tool, "responses"))["parameters"]["properties"] == properties
    assert orjson.loads(fragment(tool, "mcp"))["inputSchema"] == schema
