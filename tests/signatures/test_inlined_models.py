"""Nested models in the schemas of tools: in their place, not behind a reference, unless they contain themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
import pytest
from jsonschema_rs import validator_for
from pydantic import BaseModel, Field, create_model

from toolplug import FunctionRegistry, tool
from toolplug.signatures.described_arguments import MAX_INLINED_BYTES, TerseSchema, inline_models, schema_of_model

pytestmark = pytest.mark.requirement("I32-inlined-models")


class Address(BaseModel):
    """An address."""

    street: str


class Cat(BaseModel):
    kind: Literal["cat"]
    home: Address


class Dog(BaseModel):
    kind: Literal["dog"]


class Node(BaseModel):
    home: Address
    below: list[Node] = []


class Everything(BaseModel):
    who: Address = Field(description="The person.")
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    more: dict[str, Address] = {}
    one: Address | None = None
    pair: tuple[Address, Cat]
    named: Address = Field(default=Address(street="$ref"), json_schema_extra={"minProperties": 1})


ADDRESS = {
    "description": "An address.",
    "properties": {"street": {"type": "string"}},
    "required": ["street"],
    "type": "object",
}


def test_a_model_is_in_the_place_of_each_reference_to_it() -> None:
    schema = schema_of_model(Everything)
    properties: dict[str, Any] = schema["properties"]  # type: ignore[assignment]
    assert "$" not in orjson.dumps(properties | {"named": 0}).decode()
    assert "$defs" not in schema
    assert properties["who"] == ADDRESS | {"description": "The person."}
    assert properties["more"]["additionalProperties"] == ADDRESS
    assert properties["one"]["anyOf"][0] == ADDRESS
    assert properties["pair"]["prefixItems"][1]["properties"]["home"] == ADDRESS
    assert properties["pet"]["discriminator"] == {"propertyName": "kind"}
    assert [option["properties"]["kind"]["const"] for option in properties["pet"]["oneOf"]] == ["cat", "dog"]
    assert properties["named"] == {"default": {"street": "$ref"}, "minProperties": 1, "allOf": [ADDRESS]}
    assert orjson.dumps(schema_of_model(Everything)) == orjson.dumps(schema)


def test_a_model_that_contains_itself_stays_a_reference_and_what_is_in_it_does_not() -> None:
    schema = schema_of_model(create_model("Tree", root=(Node, ...), cat=(Cat, ...)))
    assert schema["properties"]["root"] == {"$ref": "#/$defs/Node"}  # type: ignore[index]
    assert list(schema["$defs"]) == ["Node"]  # type: ignore[call-overload]
    assert schema["$defs"]["Node"]["properties"]["home"] == ADDRESS  # type: ignore[index]


@pytest.mark.parametrize(
    "value",
    [
        {"who": {"street": "a"}, "pet": {"kind": "dog"}, "pair": [{"street": "a"}, {"kind": "cat", "home": {}}]},
        {"who": {"street": 1}, "pet": {"kind": "dog"}, "pair": []},
        {
            "who": {"street": "a"},
            "pet": {"kind": "cat", "home": {"street": "b"}},
            "pair": [{"street": "a"}, {"kind": "cat", "home": {"street": "b"}}],
            "named": {},
        },
        {
            "who": {"street": "a"},
            "pet": {"kind": "cat", "home": {"street": "b"}},
            "pair": [{"street": "a"}, {"kind": "cat", "home": {"street": "b"}}],
        },
    ],
)
def test_the_same_values_are_valid(value: object) -> None:
    referring = Everything.model_json_schema(schema_generator=TerseSchema)
    assert validator_for(schema_of_model(Everything)).is_valid(value) == validator_for(referring).is_valid(value)


def chain(length: int, *, uses: int) -> type[BaseModel]:
    model = create_model("M0", text=(str, Field(description="x" * 40)))
    for number in range(1, length):
        model = create_model(f"M{number}", **{f"f{use}": (model, ...) for use in range(uses)})  # type: ignore[call-overload]
    return model


@pytest.mark.parametrize(("length", "uses", "inlined"), [(8, 1, True), (5, 2, True), (30, 1, False), (30, 2, False)])
def test_what_would_be_too_large_or_too_deep_keeps_its_references(length: int, uses: int, inlined: bool) -> None:
    model = chain(length, uses=uses)
    schema = schema_of_model(model)
    assert ("$defs" in schema) is not inlined
    if not inlined:
        assert schema == model.model_json_schema(schema_generator=TerseSchema)


def test_a_long_model_that_is_used_often_keeps_its_references() -> None:
    long = create_model("Long", text=(str, Field(description="x" * (MAX_INLINED_BYTES // 2))))
    once = create_model("Once", a=(long, ...))
    thrice = create_model("Thrice", a=(long, ...), b=(long, ...), c=(long, ...))
    assert ["$defs" in schema_of_model(model) for model in (once, thrice)] == [False, True]


def test_what_has_no_models_stays_the_same_object() -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"$ref": {"type": "string"}}}
    assert inline_models(schema) is schema


@pytest.mark.anyio
async def test_the_definitions_of_a_tool_are_inlined_and_its_docstring_describes_a_parameter() -> None:
    class Orders:
        name = "orders"

        @tool
        async def order(self, who: Address, to: Address) -> Cat:
            """Order.

            Args:
                who: The person.
            """
            return Cat(kind="cat", home=to)

    async with FunctionRegistry([Orders()]) as registry:
        definition = registry.catalog["order"].definition
    assert definition.parameters.value["properties"] == {"who": ADDRESS | {"description": "The person."}, "to": ADDRESS}
    assert definition.output_schema is not None
    assert definition.output_schema.value["properties"]["home"] == ADDRESS
