"""Rules of grants are compared without a validator where that is exact: they never allow what the schema refuses."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from toolplug.errors import ApiError
from toolplug.parts.approvals.rules import closed_rule, matcher_of, matcher_of_equal

pytestmark = pytest.mark.requirement("I35-grants")

VALUES: list[Any] = [
    "",
    "a",
    "orders",
    "ä" * 5,
    "𝄞",
    True,
    False,
    None,
    0,
    1,
    -1,
    99,
    100,
    101,
    2**53 - 1,
    2**53,
    2**53 + 1,
    2**64,
    -(2**63),
    1.0,
    100.0,
    100.5,
    -0.0,
    1e300,
    [],
    ["a"],
    {},
    {"a": 1},
]
SCHEMAS: list[Any] = [
    True,
    {},
    {"const": "orders"},
    {"const": 1},
    {"const": True},
    {"const": None},
    {"const": 2**53 + 1},
    {"enum": ["a", "orders"]},
    {"enum": ["a", 1]},
    {"maximum": 100},
    {"minimum": 1, "maximum": 100},
    {"exclusiveMinimum": 0, "exclusiveMaximum": 100},
    {"type": "integer", "maximum": 2**53},
    {"maximum": 99.5},
    {"type": "integer"},
    {"type": ["integer", "null"], "minimum": 1},
    {"type": "number"},
    {"type": "string"},
    {"type": "boolean"},
    {"type": ["string", "null"]},
    {"maxLength": 1},
    {"minLength": 1, "maxLength": 5},
    {"pattern": "^a"},
    {"items": {"const": "a"}},
    {"properties": {"a": {"const": 1}}},
    {"anyOf": [{"const": "a"}, {"minimum": 100}]},
    {"multipleOf": 3},
]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_a_rule_allows_exactly_what_its_closed_schema_allows(number: int) -> None:
    rule = closed_rule({"properties": {"x": SCHEMAS[number]}}, None)
    matches = matcher_of(rule)
    for value in VALUES:
        assert matches({"x": value}) is rule.is_valid({"x": value}), value
    for other in ({}, {"y": "orders"}, {"x": "orders", "y": 1}):
        assert not matches(other)


def test_rules_of_several_arguments_allow_what_the_validator_allows() -> None:
    chosen = random.Random(7)
    for _ in range(300):
        names = ["a", "b", "c"][: chosen.randint(1, 3)]
        rule = closed_rule({"properties": {name: chosen.choice(SCHEMAS) for name in names}}, None)
        matches = matcher_of(rule)
        for _ in range(10):
            given = {name: chosen.choice(VALUES) for name in chosen.sample(["a", "b", "c"], len(names))}
            assert matches(given) is rule.is_valid(given), (rule, given)


def test_equal_arguments_are_of_equal_types_whatever_python_says() -> None:
    for one, other in product(VALUES, VALUES):
        alike = type(one) is type(other) and repr(one) == repr(other)
        assert matcher_of_equal({"x": one, "y": "z"})({"y": "z", "x": other}) is alike, (one, other)
    assert not matcher_of_equal({"x": {"a": [1]}})({"x": {"a": [True]}})
    assert matcher_of_equal({"x": {"a": [1], "b": 2}})({"x": {"b": 2, "a": [1]}})


@pytest.mark.parametrize("choice", [{}, True, {"title": "all"}, {"type": "object"}, {"anyOf": [{}]}, {"minimum": 0}])
def test_a_choice_that_names_no_argument_allows_none(choice: Any) -> None:
    matches = matcher_of(closed_rule({"anyOf": [choice, {"properties": {"x": {"const": 1}}}]}, ["x", "y"]))
    assert matches({"x": 1})
    for other in ({"x": 2}, {"x": 1, "y": 2}, {"y": 2}):
        assert not matches(other)


def test_a_choice_that_names_another_argument_than_the_tool_has_is_refused() -> None:
    with pytest.raises(ApiError, match=r"/anyOf/1: the tool has no argument 'tabel'.*'table'"):
        closed_rule({"anyOf": [{"properties": {"table": {}}}, {"properties": {"tabel": {}}}]}, ["table"])


def test_a_rule_with_a_keyword_that_is_not_known_is_refused() -> None:
    with pytest.raises(ApiError, match="ignoring it could allow everything"):
        closed_rule({"properties": {"x": {"maxmum": 100}}}, None)
