"""Schemas and arguments made to be dear: seeded families of keywords, up to the limits of both.

Each family takes a random source and how large its pair may be (from 0, small, to 1, at the limits) and gives a schema
that registration may accept with arguments for it. `honest_pairs` are what real tools take, up to a full request body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
FORMATS = ("email", "uri", "idn-hostname", "idn-email", "regex", "uri-template", "date-time", "ipv6", "json-pointer")
PATTERNS = (
    *("^[a-z]+$", "^(a+)+$", "a.{0,50}c", "[ab].{20}[cd]", "(a|b)*a(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)c"),
    *("a[ab]{12}c", r"\w+@\w+\.\w+", "(a{0,20}b{0,20}){0,20}c", "a.?.?.?.?.?.?.?.?c", "[ab].{100}[cd]", "^.{1,200}$"),
)

Json = dict[str, Any]


class Pair(NamedTuple):
    """A schema and arguments for it."""

    family: str
    schema: Json
    arguments: Json


def _keys(random: Random, size: float, at_most: int = 15_000) -> Json:
    return {f"k{n}": random.choice((n, "x", None)) for n in range(int(at_most * size) + 1)}


def _named(prefix: str, count: float) -> list[str]:
    return [f"{prefix}{n}" for n in range(int(count) + 1)]


def _many(item: Any, size: float, at_most: int) -> Json:
    return {"a": [item] * (int(at_most * size) + 1)}


def _each(schema: Json) -> Json:
    return {"type": "object", "properties": {"a": {"type": "array", "items": schema}}}


def _text(random: Random, size: float) -> str:
    length = int(300_000 * size) + 1  # a character has up to three bytes
    return "".join(random.choices(random.choice(("ab", "a", "aé☃", "ab .@", "0123456789-")), k=min(length, 5_000))) * (
        length // 5_000 + 1
    )


def required(random: Random, size: float) -> tuple[Json, Json]:
    return {"required": _named(random.choice("rk"), 1_500 * size)}, _keys(random, size)


def dependent_required(random: Random, size: float) -> tuple[Json, Json]:
    return {"dependentRequired": {"k0": _named(random.choice("rk"), 1_500 * size)}}, _keys(random, size)


def property_names(random: Random, size: float) -> tuple[Json, Json]:
    names = random.choice(({"maxLength": 1}, {"pattern": "^x"}, {"pattern": "a.{0,40}b"}, {"enum": ["k0"]}))
    return {"propertyNames": names}, {key + "y" * random.choice((0, 40)): 1 for key in _keys(random, size)}


def pattern_properties(random: Random, size: float) -> tuple[Json, Json]:
    return {"patternProperties": {f"z[a-c]{n}": {"type": "integer"} for n in range(int(60 * size) + 1)}}, _keys(
        random, size
    )


def additional(random: Random, size: float) -> tuple[Json, Json]:
    keyword = random.choice(("additionalProperties", "unevaluatedProperties"))
    below = random.choice((False, {"type": "string"}, {"minimum": 0.5}))
    named = {name: {} for name in _named("k", 600 * size)}
    return {"allOf": [{"properties": named}] * random.choice((1, 3)), keyword: below}, _keys(random, size)


def unevaluated_nested(random: Random, size: float) -> tuple[Json, Json]:
    schema: Json = {"properties": {"k0": {}}}
    keyword = random.choice(("allOf", "anyOf", "if"))
    for _ in range(int(12 * size) + 1):
        schema = {keyword: schema if keyword == "if" else [schema], "unevaluatedProperties": {"type": "integer"}}
    return schema, dict.fromkeys(_keys(random, size), 1)


def unique(random: Random, size: float) -> tuple[Json, Json]:
    make: Callable[[int], Any] = random.choice(
        (lambda n: n, str, lambda n: n + 0.5, lambda n: [n], lambda n: {"a": [n, [n]]}, lambda n: 10**90 + n)
    )
    return {"properties": {"a": {"uniqueItems": True}}}, {
        "a": [make(n) for n in range(int(900_000 * size) // (len(str(make(60_000))) + 2) + 1)]
    }


def unique_pairs(random: Random, size: float) -> tuple[Json, Json]:
    long = [0] * int(30_000 * size)
    return {"properties": {"a": {"uniqueItems": True}}}, {"a": [[*long, n] for n in range(random.randint(2, 16))]}


def enum(random: Random, size: float) -> tuple[Json, Json]:
    count = int(600 * size) + 1
    make: Callable[[int], Any] = random.choice((lambda n: n, str, lambda n: n + 0.5, lambda n: {"a": n}, lambda n: [n]))
    options = [make(n) for n in range(count)] + random.choice(([], [None, "x", 1, 0.5, {"a": 1}]))
    return _each({"enum": options}), _many(random.choice((make(count - 1), "x", 1.5, {"a": -1}, [7])), size, 100_000)


def const(random: Random, size: float) -> tuple[Json, Json]:
    value = random.choice((5.5, 5, list(range(15)), {"a": {"b": 1}}, "x" * 2_000))
    return _each({"allOf": [{"const": value}] * (int(100 * size) + 1)}), _many(
        value, size, 900_000 // (len(str(value)) + 2) // 20
    )


def branches(random: Random, size: float) -> tuple[Json, Json]:
    keyword, count = random.choice(("anyOf", "oneOf", "allOf")), int(300 * size) + 1
    one: Callable[[int], Json] = random.choice(
        (
            lambda n: {"type": "string"},
            lambda n: {"required": ["x"], "properties": {"x": {"const": n}}},
            lambda n: {"not": {"type": "object", "properties": {"x": {"minimum": n}}}},
            lambda n: {"if": {"type": "integer"}, "then": {"minimum": n}, "else": {"maxProperties": 3}},
        )
    )
    return _each({keyword: [one(n) for n in range(count)]}), _many(random.choice(({"x": 1}, 7, "t")), size, 60_000)


def contains(random: Random, size: float) -> tuple[Json, Json]:
    inner: list[Json] = [{"contains": {"const": n}, "minContains": 0} for n in range(int(300 * size) + 1)]
    return {"properties": {"a": {"allOf": inner}}}, _many(random.choice((-1, 0.5, "x")), size, 100_000)


def numbers(random: Random, size: float) -> tuple[Json, Json]:
    keyword = random.choice(
        ({"multipleOf": 0.01}, {"multipleOf": 7e-300}, {"multipleOf": 3}, {"minimum": 0.5}, {"maximum": 9})
    )
    value = random.choice((1, 1.5, 1.25e-300, 1e300, 10**300, 10 ** (4_200 if size > 0.5 else 40)))
    return _each({"allOf": [keyword] * (int(60 * size) + 1)}), {
        "a": [value] * (int(900_000 * size / len(str(value))) // 4 + 1)
    }


def pattern(random: Random, size: float) -> tuple[Json, Json]:
    texts = [{"pattern": random.choice(PATTERNS)} for _ in range(int(30 * size) + 1)]
    return {"properties": {"a": {"allOf": texts}}}, {"a": _text(random, size)}


def pattern_each(random: Random, size: float) -> tuple[Json, Json]:
    return _each({"pattern": random.choice(PATTERNS)}), _many(_text(random, 0.0001), size, 5_000)


def formats(random: Random, size: float) -> tuple[Json, Json]:
    keywords: list[Json] = [{"format": random.choice(FORMATS)}, {"contentMediaType": "application/json"}]
    schema = {"$schema": DRAFT_7, "properties": {"a": {"allOf": [random.choice(keywords)] * (int(50 * size) + 1)}}}
    return schema, {
        "a": random.choice((_text(random, size), "[" + "1," * int(300_000 * size) + "1]", "é." * int(200_000 * size)))
    }


def recursion(random: Random, size: float) -> tuple[Json, Json]:
    again: Json = {"properties": {"a": {"$ref": "#"}, "b": {"items": {"$ref": "#"}}}, "uniqueItems": True}
    schema = {
        random.choice(("anyOf", "oneOf", "allOf")): [again] * random.choice((1, 2, 3)),
        "type": ["object", "array"],
    }
    value: Any = {"b": [1] * int(1_000 * size)}
    for _ in range(int(60 * size) + 1):
        value = {"a": value}
    return schema, value


def expanded(random: Random, size: float) -> tuple[Json, Json]:
    depth = int(11 * size) + 1
    steps = {f"s{n}": {"anyOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(depth)}
    leaf = random.choice(({"type": "string"}, {"required": ["z"]}, {"multipleOf": 0.1}))
    return {**_each({"$ref": "#/$defs/s0"}), "$defs": {**steps, f"s{depth}": leaf}}, _many(
        random.choice((1.5, {})), size, 50_000
    )


def nodes(random: Random, size: float) -> tuple[Json, Json]:
    below = random.choice(({"items": {"type": "string"}}, {"items": {"items": {}}}, {"type": "array", "maxItems": 2}))
    return _each(below), _many(random.choice(([], {}, 0, [0], [[]])), size, 200_000)


FAMILIES: tuple[Callable[[Random, float], tuple[Json, Json]], ...] = (
    *(required, dependent_required, property_names, pattern_properties, additional, unevaluated_nested, unique),
    *(
        unique_pairs,
        enum,
        const,
        branches,
        contains,
        numbers,
        pattern,
        pattern_each,
        formats,
        recursion,
        expanded,
        nodes,
    ),
)


LARGEST = 4
"""So many pairs of each family come first, and are as large as is allowed."""


def hostile_pairs(count: int, seed: int = 12) -> Iterator[Pair]:
    """So many pairs: every family in turn, most of them small, some at the limits."""
    random = Random(seed)
    for number in range(count):
        family = FAMILIES[number % len(FAMILIES)]
        largest = number < LARGEST * len(FAMILIES)
        size = 1.0 if largest else random.random() ** random.choice((4, 12, 24))
        schema, arguments = family(random, size)
        yield Pair(family.__name__, {"type": "object", **schema}, arguments)


_ROW: Json = {
    "type": "object",
    "required": ["id", "name"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "name": {"type": "string", "maxLength": 200},
        "value": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
        "kind": {"enum": ["a", "b", "c"]},
    },
}


def honest_pairs() -> Iterator[Pair]:
    """What real tools take, each close to a mebibyte."""
    rows = [{"id": n, "name": "a name", "value": 1.5, "tags": ["x", "y"], "kind": "b"} for n in range(13_000)]
    yield Pair("rows", {"properties": {"rows": {"type": "array", "items": _ROW}}}, {"rows": rows})
    defined = {"properties": {"rows": {"items": {"$ref": "#/$defs/row"}}}, "$defs": {"row": _ROW}}
    yield Pair("rows by reference", defined, {"rows": rows})
    plain = {
        "properties": {"text": {"type": "string", "minLength": 1}, "mode": {"enum": ["r", "w"]}},
        "required": ["text"],
    }
    yield Pair("a document", plain, {"text": "word " * 200_000, "mode": "w"})
    yield Pair("a matched document", {"properties": {"text": {"pattern": r"\S"}}}, {"text": "word " * 200_000})
    yield Pair(
        "numbers", {"properties": {"v": {"type": "array", "items": {"type": "number"}}}}, {"v": [0.125] * 150_000}
    )
    bounded = {"properties": {"v": {"items": {"type": "integer", "minimum": 0, "maximum": 9_999_999}}}}
    yield Pair("bounded integers", bounded, {"v": list(range(130_000))})
    identifiers = {"type": "array", "uniqueItems": True, "items": {"type": "string", "format": "uuid"}}
    yield Pair("unique texts", {"properties": {"v": identifiers}}, {"v": [f"{n:032x}" for n in range(25_000)]})
    tree = {
        "type": "object",
        "properties": {"next": {"type": "array", "items": {"$ref": "#"}}, "v": {"type": "string"}},
    }
    leaf = {"v": "x" * 20, "next": [{"v": "y"}] * 20}
    yield Pair("a tree", tree, {"next": [{"next": [leaf] * 50}] * 40})
    points = {"properties": {"v": {"items": {"type": "array", "items": {"type": "number"}, "minItems": 2}}}}
    yield Pair("points", points, {"v": [[12.5, 41.25]] * 60_000})
    anything = {"properties": {"data": {"type": "object", "additionalProperties": {"type": "string"}}}}
    yield Pair("a map", anything, {"data": {f"key {n}": "value" for n in range(45_000)}})
