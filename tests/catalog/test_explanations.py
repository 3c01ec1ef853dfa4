"""Errors of large values: what a schema that admits nothing costs, wherever it is, and a bound that knows no prices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolplug.catalog.schema import Schema
from toolplug.catalog.schema_walk import BELOW_VALUE, SAME_VALUE
from toolplug.catalog.validation.price import MAX_EXPLAINED_VALUES

Json = dict[str, Any]

UNEXPLAINED = ("/: invalid, too large to explain",)
REFUSED_UNREAD = ("/: too large to validate",)
MAX_ERRORS = 3_400
"""An error has a price of at least 3 µs, of a budget of 10 ms."""

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
APPLICATORS = sorted(BELOW_VALUE | SAME_VALUE)


def under(keyword: str, inner: object, times: int = 1) -> Json:
    """A schema that applies the inner one by the keyword, so many times if the keyword takes several."""
    match keyword:
        case "properties" | "dependentSchemas" | "dependencies":
            return {keyword: {f"k{n}": inner for n in range(times)}}
        case "patternProperties":
            return {keyword: {f"^k{'.' * n}": inner for n in range(times)}}
        case "allOf" | "anyOf" | "oneOf" | "prefixItems":
            return {keyword: [inner] * times}
        case "additionalItems":
            return {"items": [True], keyword: inner}
        case "not":
            return {keyword: {"not": inner}}
        case "then" | "else":
            return {"if": keyword == "then", keyword: inner}
        case _:
            return {keyword: inner}


def values(count: int) -> Iterator[object]:
    """Containers that hold so many values, in the ways that one schema may be applied to many."""
    yield [1] * count
    yield {f"k{n}": 1 for n in range(count)}
    yield [[1]] * (count // 2)
    yield [{"k0": 1}] * (count // 2)
    yield {f"k{n}": {"k0": [1]} for n in range(count // 3)}


def is_cheap(schema: Json, value: object) -> bool:
    """Whether the errors that an explanation has to build are few enough, counted by the library itself."""
    schema = {"$schema": DRAFT_7, **schema} if "additionalItems" in str(schema) else schema
    if Schema(schema).refusals(value) in ((), UNEXPLAINED, REFUSED_UNREAD):
        return True
    errors = jsonschema_rs.validator_for(schema).iter_errors(value)  # all are built before the first one comes
    return len(list(islice(errors, MAX_ERRORS + 1))) <= MAX_ERRORS


@pytest.mark.requirement("C-3-validation-bounded")
@pytest.mark.parametrize("keyword", APPLICATORS)
@pytest.mark.parametrize("holder", ["items", "additionalProperties"])
def test_a_schema_that_admits_nothing_has_its_price_in_every_place(keyword: str, holder: str) -> None:
    for times in (1, 10):
        for schema in (under(keyword, False, times), under(holder, under(keyword, False, times))):
            for value in values(MAX_EXPLAINED_VALUES - 10):
                assert is_cheap(schema, value), (schema, value)


@pytest.mark.requirement("C-3-validation-bounded")
def test_a_reference_to_a_schema_that_admits_nothing_has_its_price() -> None:
    schema = {"items": {"allOf": [{"$ref": "#/$defs/none"}] * 5}, "$defs": {"none": False}}
    assert Schema(schema).refusals([1] * 1_000) == UNEXPLAINED
    assert len(Schema(schema).refusals([1] * 3)) == 15


@st.composite
def schemas(draw: st.DrawFn) -> Json:
    """Applicators within one another around `false`, at most five deep."""
    schema: object = False
    for _ in range(draw(st.integers(1, 5))):
        schema = under(draw(st.sampled_from(APPLICATORS)), schema, draw(st.integers(1, 3)))
    assert isinstance(schema, dict)
    return schema


@pytest.mark.slow
@pytest.mark.requirement("C-3-validation-bounded")
@given(schemas(), st.integers(0, 4))
def test_no_combination_of_places_has_more_errors_than_its_price_says(schema: Json, number: int) -> None:
    assert is_cheap(schema, list(values(MAX_EXPLAINED_VALUES - 10))[number])


@pytest.mark.requirement("C-3-validation-bounded")
def test_more_values_than_can_be_explained_are_not_explained_whatever_they_cost() -> None:
    schema = Schema({"required": ["name"], "properties": {"name": {"type": "string"}}})
    free = MAX_EXPLAINED_VALUES - 2  # the object and its list count as well
    assert schema.refusals({"a": [1] * free}) == ('/: "name" is required',)
    assert schema.refusals({"a": [1] * (free + 1)}) == UNEXPLAINED
    assert schema.refusals({"a": "x" * 100_000}) == ('/: "name" is required',)
