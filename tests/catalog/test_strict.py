"""Strict mode: schemas of pydantic and their arguments, there and back."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from toolplug.model_apis.strict import strict_schema, without_nulls


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Leaf(BaseModel):
    kind: Literal["leaf"] = "leaf"
    size: int | None = None


class Twig(BaseModel):
    kind: Literal["twig"]
    leaves: list[Leaf] = Field(default=[], max_length=9)
    next: Twig | None = None


class Garden(BaseModel):
    name: str = Field(min_length=1, description="what it is called")
    colour: Colour = Colour.RED
    parts: list[Leaf | Twig] = []
    first: Leaf = Field(default=Leaf(), description="the first leaf")
    ratio: float = Field(0.5, ge=0, le=1)


def test_every_object_requires_all_its_properties_and_takes_no_others() -> None:
    strict = strict_schema(Garden.model_json_schema())
    assert strict is not None
    assert strict["required"] == ["name", "colour", "parts", "first", "ratio"]
    properties: Any = strict["properties"]
    assert properties["name"] == {"title": "Name", "type": "string", "description": "what it is called"}
    assert properties["ratio"]["type"] == ["number", "null"]
    assert properties["first"] == {
        "description": "the first leaf",
        "anyOf": [{"$ref": "#/$defs/Leaf"}, {"type": "null"}],
    }
    definitions: Any = strict["$defs"]
    assert definitions["Leaf"]["additionalProperties"] is False
    assert definitions["Leaf"]["required"] == ["kind", "size"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}]}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
        {"type": "object", "properties": {"a": True}},
        {"type": "object"},
        {"anyOf": [{"type": "object", "properties": {}}]},
    ],
)
def test_what_takes_anything_has_no_strict_form(schema: dict[str, object]) -> None:
    assert strict_schema(schema) is None


def gardens() -> st.SearchStrategy[Garden]:
    leaves = st.builds(Leaf, size=st.none() | st.integers())
    twigs = st.builds(Twig, kind=st.just("twig"), leaves=st.lists(leaves, max_size=2), next=st.none())
    twigs |= st.builds(Twig, kind=st.just("twig"), leaves=st.just([]), next=twigs)
    return st.builds(Garden, name=st.text(min_size=1), parts=st.lists(leaves | twigs, max_size=3), first=leaves)


def nulled(value: object, unset: object) -> object:
    """What a model in strict mode writes for a value: every property, and null for what was not set."""
    if isinstance(value, list) and isinstance(unset, list):
        return [nulled(*pair) for pair in zip(value, unset, strict=True)]
    if not isinstance(value, dict) or not isinstance(unset, dict):
        return value
    return {name: nulled(item, unset[name]) if name in unset else None for name, item in value.items()}


@given(gardens())
def test_what_a_model_writes_in_strict_mode_is_the_arguments_again(garden: Garden) -> None:
    schema = Garden.model_json_schema()
    strict = strict_schema(schema)
    assert strict is not None
    given = garden.model_dump(mode="json", exclude_unset=True)
    written = nulled(garden.model_dump(mode="json"), given)
    jsonschema_rs.validator_for(strict).validate(written)
    arguments = without_nulls(schema, written)
    jsonschema_rs.validator_for(schema).validate(arguments)
    assert Garden.model_validate(arguments) == garden
