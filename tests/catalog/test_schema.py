"""Schemas: their limits, what their validators refuse, and that no schema or value can hold the process up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolplug.catalog.schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, MAX_SCHEMA_NODES, Schema
from toolplug.catalog.schema_walk import MAX_EXPANDED_REFERENCES
from toolplug.catalog.validation.compiled import MAX_REPORTED, is_json_schema
from toolplug.errors import InvalidDefinition

Json = Mapping[str, object]

TOO_LARGE = ("/: too large to validate",)
UNEXPLAINED = ("/: invalid, too large to explain",)


def sized(size: int) -> Json:
    """A schema of so many bytes."""
    frame = len(Schema({"title": ""}).text)
    return {"title": "x" * (size - frame)}


def nested(levels: int, leaf: object = 1) -> object:
    """A value with its leaf so many levels below the top."""
    for _ in range(levels):
        leaf = {"not": leaf}
    return leaf


def deep(levels: int) -> Json:
    schema = nested(levels)
    assert isinstance(schema, dict)
    return schema


def doubling(definitions: int, leaf: Json, keyword: str = "anyOf") -> Json:
    """Each definition names the next one twice: 2^n expansions."""
    named = {
        f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(definitions)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**named, f"a{definitions}": leaf}}


def expanding(references: int) -> Json:
    """A schema whose references expand so many times: a hundred names of a definition that names a leaf often."""
    inner, outer = 98, references - 100 * 99
    return {
        "allOf": [{"$ref": "#/$defs/many"}] * 100 + [{"$ref": "#/$defs/leaf"}] * outer,
        "$defs": {"many": {"allOf": [{"$ref": "#/$defs/leaf"}] * inner}, "leaf": {"type": "object"}},
    }


@pytest.mark.requirement("H-limit-schema")
def test_a_schema_of_64_kib_passes_and_one_byte_more_does_not() -> None:
    assert len(Schema(sized(MAX_SCHEMA_BYTES)).text) == MAX_SCHEMA_BYTES == 64 * 1024
    with pytest.raises(InvalidDefinition, match="the schema has 65537 bytes, 65536 are allowed"):
        Schema(sized(MAX_SCHEMA_BYTES + 1))


@pytest.mark.requirement("H-limit-depth")
def test_a_schema_of_depth_32_passes_and_one_level_more_does_not() -> None:
    assert MAX_SCHEMA_DEPTH == 32
    Schema(deep(32))
    with pytest.raises(InvalidDefinition, match="the schema is more than 32 levels deep"):
        Schema(deep(33))


@pytest.mark.requirement("H-limit-nodes")
def test_a_schema_of_2000_nodes_passes_and_one_more_does_not() -> None:
    assert MAX_SCHEMA_NODES == 2_000
    Schema({"enum": list(range(1_998))})
    with pytest.raises(InvalidDefinition, match="the schema has more than 2000 nodes"):
        Schema({"enum": list(range(1_999))})


@pytest.mark.requirement("H-limit-references")
def test_10000_expanded_references_pass_and_one_more_does_not() -> None:
    assert MAX_EXPANDED_REFERENCES == 10_000
    assert Schema(expanding(10_000)).is_valid({})
    with pytest.raises(InvalidDefinition, match="the schema's references expand more than 10000 times"):
        Schema(expanding(10_001))


@pytest.mark.requirement("H-limit-references")
@pytest.mark.parametrize(
    "schema",
    [
        doubling(300, {}),
        doubling(13, {}, "allOf"),
        doubling(13, {}, "oneOf"),
        {"properties": {"a": doubling(13, {})}, **doubling(13, {})},
        {
            "$ref": "#a0",
            "$defs": {
                f"a{n}": {"$anchor": f"a{n}", "anyOf": [{"$ref": f"#a{n + 1}"}, {"$ref": f"#a{n + 1}"}]}
                for n in range(14)
            }
            | {"a14": {"$anchor": "a14"}},
        },
        {
            "$dynamicRef": "#a0",
            "$defs": {
                f"a{n}": {"$dynamicAnchor": f"a{n}", "anyOf": [{"$dynamicRef": f"#a{n + 1}"}] * 2} for n in range(14)
            }
            | {"a14": {"$dynamicAnchor": "a14"}},
        },
        {
            "$ref": "https://a.example/a0",
            "$defs": {
                f"a{n}": {
                    "$id": f"https://a.example/a{n}",
                    "allOf": [{"$ref": f"a{n + 1}"}, {"$ref": f"./a{n + 1}"}],
                }
                for n in range(14)
            }
            | {"a14": {"$id": "https://a.example/a14"}},
        },
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#a0",
            "definitions": {
                f"a{n}": {"$id": f"#a{n}", "allOf": [{"$ref": f"#a{n + 1}"}, {"$ref": f"#/definitions/a{n + 1}"}]}
                for n in range(14)
            }
            | {"a14": {"$id": "#a14"}},
        },
        {
            "$ref": "#/any%20where/0",
            "any where": [{"anyOf": [{"$ref": f"#/any where/{n + 1}"}] * 2} for n in range(14)] + [{}],
        },
    ],
)
def test_a_bomb_of_references_is_refused_however_it_is_written(schema: Json) -> None:
    with pytest.raises(InvalidDefinition, match="the schema's references expand more than 10000 times"):
        Schema(schema)


@pytest.mark.requirement("H-limit-references")
@pytest.mark.parametrize(
    ("identifier", "reference"),
    [("d/a{}/", "../a{}/."), ("a{}/.", "../a{}/"), ("a{}/x", "../a{}/x/y/.."), ("a{}?q", "a{}?q"), ("%61{}", "a{}")],
)
def test_a_bomb_is_refused_also_where_its_addresses_are_written_in_another_way(identifier: str, reference: str) -> None:
    bomb = {
        "$ref": f"https://a.example/{identifier.format(0)}",
        "$defs": {
            f"a{n}": {
                "$id": f"https://a.example/{identifier.format(n)}",
                "allOf": [{"$ref": reference.format(n + 1)}, {"$ref": reference.format(n + 1)}],
            }
            for n in range(15)
        },
    }
    with pytest.raises(InvalidDefinition):
        Schema(bomb)


@pytest.mark.requirement("H-limit-references")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"type": "object"}, {"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#/$defs/a"}}}},
        {
            "$ref": "#/$defs/a0",
            "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{m}"} for m in range(8) if m != n]} for n in range(8)},
        },
    ],
)
def test_a_reference_that_leads_back_to_itself_within_one_value_is_refused(schema: Json) -> None:
    with pytest.raises(InvalidDefinition, match="leads back to itself without going into the value"):
        Schema(schema)


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "left": {"$ref": "#/$defs/node"},
                "right": {"$ref": "#/$defs/node"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                "value": {"type": "integer"},
            },
        }
    },
}


@pytest.mark.requirement("C-3-invalid-lines", "H-limit-references")
def test_a_recursive_schema_is_allowed_and_says_where_a_value_is_wrong() -> None:
    schema = Schema(TREE)
    assert schema.refusals({"left": {"children": [{"value": 1}]}}) == ()
    assert schema.refusals({"left": {"children": [{}, {"value": "x"}]}}) == (
        '/left/children/1/value: must be of type "integer"',
    )


@pytest.mark.requirement("H-limit-references")
def test_definitions_that_name_one_another_below_the_value_expand_once() -> None:
    kinds = [f"k{n}" for n in range(12)]
    either = {"anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds]}
    grammar = {**either, "$defs": {kind: {"properties": {"left": either, "right": either}} for kind in kinds}}
    assert Schema(grammar).is_valid({"left": {"right": {}}})


@pytest.mark.requirement("H-limit-references")
def test_a_long_ring_below_the_value_expands_once_however_often_each_names_the_next() -> None:
    ring = {
        f"r{n}": {"properties": {name: {"$ref": f"#/$defs/r{(n + 1) % 20}"} for name in ("a", "b")}, "type": "object"}
        for n in range(20)
    }
    schema = Schema({"$ref": "#/$defs/r0", "$defs": ring})
    assert schema.refusals({"a": {"b": {"a": 1}}}) == ('/a/b/a: must be of type "object"',)


@pytest.mark.requirement("H-limit-references")
@pytest.mark.parametrize("end", ["", "/", "#"])
def test_a_bundled_schema_with_ids_of_its_own_is_allowed(end: str) -> None:
    tree = f"https://a.example/tree{end}"
    bundled = {
        "$id": f"https://a.example/root{end}",
        "$ref": tree,
        "$defs": {"tree": {"$id": tree, "type": "object", "properties": {"next": {"$ref": tree}}}},
    }
    assert Schema(bundled).refusals({"next": {"next": 1}}) == ('/next/next: must be of type "object"',)


@pytest.mark.requirement("C-3-invalid-lines", "H-limit-references")
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_value_that_goes_deep_into_a_branching_recursion_is_refused_in_a_moment(keyword: str) -> None:
    again = {"properties": {"a": {"$ref": "#"}}}
    schema = Schema({"type": "object", keyword: [again, again, again]})
    value: object = 1
    for _ in range(60):
        value = {"a": value}
    assert schema.refusals(value) == TOO_LARGE


@pytest.mark.requirement("C-3-invalid-lines")
def test_a_value_with_a_great_many_faults_is_refused_in_a_moment() -> None:
    assert Schema({"items": {"type": "string"}}).refusals([0] * 200_000) == UNEXPLAINED
    assert Schema({"items": {"type": "string"}}).refusals(["x"] * 200_000) == ()
    assert Schema({"items": {"pattern": "a.{0,50}b"}}).refusals(["x"] * 200_000) == TOO_LARGE


@pytest.mark.requirement("C-3-invalid-lines")
def test_many_values_against_many_branches_are_refused_in_a_moment() -> None:
    schema = Schema({"items": {"anyOf": [{"type": "string"}] * 400}})
    assert schema.refusals([0] * 400) == UNEXPLAINED
    assert len(schema.refusals([0] * 5)) == 5


@pytest.mark.requirement("C-3-invalid-lines")
def test_a_value_of_128_levels_is_explained() -> None:
    schema = Schema({"type": "object", "properties": {"a": {"$ref": "#"}}})
    value: object = 1
    for _ in range(127):
        value = {"a": value}
    assert schema.refusals(value) == ("/a" * 74 + '/…: must be of type "object"',)


@pytest.mark.requirement("H-fact-remote-ref")
@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1:9/x.json", "https://schema.example/x#/y", "file:///etc/passwd"]
)
def test_a_remote_reference_is_refused_and_never_fetched(reference: str) -> None:
    with pytest.raises(InvalidDefinition) as raised:
        Schema({"properties": {"a": {"$ref": reference}}}).check()
    document = reference.partition("#")[0]
    assert str(raised.value) == (
        f"not a valid JSON Schema: Resource {document!r} is not present in a registry and retrieving it failed: "
        f"ValueError: the remote reference {document!r} is not fetched; put the schema under $defs"
    )


@pytest.mark.requirement("H-fact-remote-ref")
def test_a_remote_meta_schema_is_not_fetched_either() -> None:
    with pytest.raises(InvalidDefinition, match="not a valid JSON Schema: "):
        Schema({"$schema": "http://127.0.0.1:9/meta.json", "type": "object"}).check()


@pytest.mark.requirement("H-fact-remote-ref")
def test_a_relative_reference_to_another_document_is_no_schema() -> None:
    with pytest.raises(InvalidDefinition, match="not a valid JSON Schema: "):
        Schema({"$ref": "other.json"}).check()


@pytest.mark.requirement("H-fact-regex")
def test_a_pattern_that_explodes_elsewhere_is_checked_in_linear_time() -> None:
    schema = Schema({"properties": {"a": {"pattern": "^(a+)+$"}, "b": {"pattern": "^(a|a?)+$"}}})
    assert schema.refusals({"a": "a" * 10_000, "b": "a" * 10_000}) == ()
    assert len(schema.refusals({"a": "a" * 10_000 + "!", "b": "a" * 10_000 + "!"})) == 2


@pytest.mark.requirement("H-fact-regex")
@pytest.mark.parametrize("pattern", ["^(?=a)b", r"(a)\1", "("])
def test_a_pattern_that_needs_backtracking_or_is_none_is_no_schema(pattern: str) -> None:
    with pytest.raises(InvalidDefinition, match="not a valid JSON Schema: "):
        Schema({"pattern": pattern}).check()


@pytest.mark.parametrize(
    "value", [{"type": "nothing"}, {"properties": []}, {"minimum": "1"}, {"$ref": "#/$defs/absent"}]
)
def test_what_is_no_json_schema_is_refused_in_one_line_when_it_is_compiled(value: Json) -> None:
    with pytest.raises(InvalidDefinition, match="not a valid JSON Schema: ") as raised:
        Schema(value).check()
    assert "\n" not in str(raised.value)


@pytest.mark.requirement("C-3-exact-integers")
@pytest.mark.requirement("I32-tools-document")
def test_a_schema_that_the_library_panics_at_is_no_schema() -> None:
    one = {"$id": "https://example.org/inner", "not": {"$ref": "#at"}}
    other = {"$id": "https://example.org/inner", "not": {"$anchor": "at"}}
    schema = Schema({"properties": {"p": one, "q": {"$ref": "#at"}}, "$defs": {"a": other}})
    with pytest.raises(InvalidDefinition, match="its references cannot be followed"):
        schema.check()


def test_bounds_over_64_bits_are_exact() -> None:
    schema = Schema({"properties": {"a": {"maximum": 1 << 64}, "b": {"enum": [10**40 + 1]}}})
    assert b"18446744073709551616" in schema.text
    assert schema.refusals({"a": 1 << 64, "b": 10**40 + 1}) == ()
    assert len(schema.refusals({"a": (1 << 64) + 1, "b": 10**40})) == 2
    assert schema.value["properties"] == {"a": {"maximum": 2.0**64}, "b": {"enum": [1e40]}}


@pytest.mark.parametrize("number", [10**308, 10**309, -(10**4_299)], ids=["308 zeros", "309", "negative"])
def test_an_integer_that_no_float_reaches_is_no_schema(number: int) -> None:
    reaches = number == 10**308
    with nullcontext() if reaches else pytest.raises(InvalidDefinition, match="an integer over"):
        assert Schema({"properties": {"a": {"default": number}}}).value


@pytest.mark.parametrize("value", [{"a": b"x"}, {"a": {1}}, {1: "x"}, {"a": "\ud800"}, {"a": [b"x", 1 << 70]}])
def test_what_is_not_json_is_no_schema(value: dict[str, object]) -> None:
    with pytest.raises(InvalidDefinition, match="the schema is not JSON"):
        Schema(value)


def test_a_schema_that_holds_itself_is_refused() -> None:
    value: dict[str, object] = {}
    value["not"] = value
    with pytest.raises(InvalidDefinition, match="the schema is more than 32 levels deep"):
        Schema(value)


@pytest.mark.requirement("DESIGN-catalog-frozen")
def test_a_schema_keeps_its_text_whatever_becomes_of_what_it_was_made_from() -> None:
    given = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema = Schema(given)
    given.clear()
    schema.value.clear()
    assert schema.value == {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert schema.refusals({"a": 1}) == ()


def test_equal_text_is_an_equal_schema() -> None:
    one, same, other = Schema({"type": "object"}), Schema({"type": "object"}), Schema({"type": "array"})
    assert (one == same, hash(one) == hash(same), one == other, one == "x") == (True, True, False, False)


@pytest.mark.requirement("C-3-invalid-lines")
@pytest.mark.parametrize("faults", [1, 19, 20, 21, 100])
def test_at_most_20_lines_say_where_and_why(faults: int) -> None:
    schema = Schema({"items": {"type": "string"}})
    lines = schema.refusals([0] * faults)
    assert lines == tuple(f'/{n}: must be of type "string"' for n in range(min(faults, MAX_REPORTED)))
    assert MAX_REPORTED == 20


@pytest.mark.requirement("C-3-invalid-lines")
def test_lines_point_into_the_value_with_escaped_names_and_the_top_is_a_slash() -> None:
    schema = Schema({"properties": {"a/b~c": {"items": {"minimum": 1}}}, "required": ["z"]})
    assert schema.refusals({"a/b~c": [5, 0]}) == (
        '/: "z" is required',
        "/a~1b~0c/1: is less than the minimum of 1",
    )


@pytest.mark.requirement("C-3-invalid-lines")
@given(secret=st.text(st.sampled_from("XYZ789"), min_size=6, max_size=12))
def test_values_are_masked_in_every_line(secret: str) -> None:
    strict = {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"enum": ["x", "y"]},
            "c": {"const": "x"},
            "d": {"pattern": "^x$"},
            "e": {"maxLength": 1},
            "f": {"anyOf": [{"type": "integer"}, {"const": 1}]},
            "g": {"items": {"type": "integer"}},
            "h": {"format": "date-time", "not": {"type": "string"}},
            "i": {"type": "array", "uniqueItems": True},
            "j": {"contains": {"type": "integer"}, "type": "array"},
        },
    }
    lists = {"g": [secret], "i": [secret, secret], "j": [secret]}
    lines = Schema(strict).refusals(dict.fromkeys("abcdefh", secret) | lists)
    assert len(lines) == 10
    assert secret not in "".join(lines)


@pytest.mark.parametrize("value", [{"a": object()}, {"a": b"x"}, {1: "x"}])
def test_a_value_that_is_not_json_is_refused_in_a_line(value: object) -> None:
    lines = Schema({"properties": {"a": {"type": "string"}}}).refusals(value)
    assert len(lines) == 1
    assert lines[0].startswith("/: not JSON: ")


_TEXTS = st.sampled_from(["a", "b", 1])
_PROPERTIES = st.dictionaries(
    st.sampled_from(["a", "pattern", "type"]),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "null", "list", ["string"], 1])},
        optional={"title": _TEXTS, "default": st.just({"$ref": "none"}), "enum": st.just(1), "minLength": st.just(-1)},
    ),
)


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array", 1])},
        optional={
            "properties": _PROPERTIES,
            "required": st.lists(_TEXTS) | st.just("a"),
            "additionalProperties": st.sampled_from([True, {}, 1]),
            "description": _TEXTS,
        },
    )
)
def test_a_plain_schema_is_checked_as_the_metaschema_does(schema: dict[str, object]) -> None:
    try:
        Schema(schema).check()
    except InvalidDefinition:
        assert not is_json_schema(schema)
    else:
        assert is_json_schema(schema)
