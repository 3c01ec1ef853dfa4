"""From a method's signature to the schema of its arguments, and from arguments to what the method takes."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, Union
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from toolplug.catalog.call import CallContext, Principal, ToolResult
from toolplug.errors import InvalidArguments, InvalidDefinition
from toolplug.providers.authoring import BoundTool, bound_tools, tool
from toolplug.providers.provider import FunctionProvider


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    """Where somebody lives."""

    title: str
    number: int = 1


@dataclass
class Point:
    x: int
    y: float = 0.0
    marks: list[str] = field(default_factory=list)


class Range(TypedDict):
    first: int
    last: NotRequired[int]


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


def never(text: str) -> str:
    raise ValueError(f"{text} is never right")


def the_tool(function: Any) -> BoundTool:
    (bound,) = bound_tools(type("Provider", (FunctionProvider,), {"method": tool(function)})())
    return bound


def parameters(function: Any) -> dict[str, Any]:
    return the_tool(function).definition.parameters.value


def taken(function: Any, **arguments: object) -> Mapping[str, object]:
    """What the method gets for these arguments, which must be valid by the schema."""
    bound = the_tool(function)
    assert bound.definition.parameters.refusals(arguments) == ()
    return arguments if bound.convert is None else bound.convert(arguments)


def refused(function: Any, **arguments: object) -> tuple[str, ...]:
    with pytest.raises(InvalidArguments) as raised:
        taken(function, **arguments)
    return raised.value.lines


@pytest.mark.requirement("C-12-tool-schema")
def test_the_schema_is_an_object_of_the_parameters_and_nothing_else() -> None:
    def method(self: Any, query: str, limit: int = 5, *, exact: bool = False) -> None: ...

    assert parameters(method) == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "default": 5},
            "exact": {"type": "boolean", "default": False},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


@pytest.mark.requirement("C-12-tool-schema")
def test_a_method_without_parameters_takes_an_empty_object() -> None:
    def method(self: Any) -> None: ...

    assert parameters(method) == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.requirement("C-12-tool-schema")
@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (float, {"type": "number"}),
        (Any, {}),
        (list, {"type": "array", "items": {}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045  both spellings are tested
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (datetime, {"format": "date-time", "type": "string"}),
        (UUID, {"format": "uuid", "type": "string"}),
        (
            Annotated[int, Field(ge=1, description="how many")],
            {"type": "integer", "minimum": 1, "description": "how many"},
        ),
        (
            Annotated[str, Field(pattern="^a+$", title="Letters")],
            {"type": "string", "pattern": "^a+$", "title": "Letters"},
        ),
        (Annotated[list[str], Field(max_length=3)], {"type": "array", "items": {"type": "string"}, "maxItems": 3}),
    ],
)
def test_a_type_has_its_schema_without_noise(annotation: Any, schema: dict[str, object]) -> None:
    def method(self: Any, value: annotation) -> None: ...

    assert parameters(method)["properties"] == {"value": schema}


@pytest.mark.requirement("C-12-tool-schema")
def test_named_types_are_in_their_place_and_those_within_themselves_under_local_definitions() -> None:
    def method(self: Any, colour: Colour, home: Address, point: Point, span: Range, tree: Tree) -> None: ...

    schema = parameters(method)
    assert list(schema["$defs"]) == ["Tree"]
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert schema["properties"]["colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert schema["properties"]["home"] == {
        "description": "Where somebody lives.",
        "properties": {"title": {"type": "string"}, "number": {"type": "integer", "default": 1}},
        "required": ["title"],
        "type": "object",
    }
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


@pytest.mark.requirement("C-12-tool-schema")
def test_parameters_may_be_called_what_a_model_could_not_call_its_fields() -> None:
    def method(self: Any, schema: str, model_config: str, json: str, _hidden: str, copy: str = "c") -> None: ...

    given = {"schema": "a", "model_config": "b", "json": "c", "_hidden": "d"}
    assert list(parameters(method)["properties"]) == ["schema", "model_config", "json", "_hidden", "copy"]
    assert taken(method, **given) == given


def test_a_default_that_is_not_json_is_left_out_of_the_schema_and_holds_in_the_call() -> None:
    def method(self: Any, value: Any = Ellipsis, when: date = date.max, other: Any = object) -> None: ...

    schema = parameters(method)
    assert schema["properties"]["other"] == {}
    assert schema["properties"]["when"]["default"] == "9999-12-31"
    assert taken(method, value=1) == {"value": 1}


@pytest.mark.requirement("C-12-tool-schema")
@pytest.mark.parametrize(
    "annotation",
    [str, bool, float, Any, None, list, list[str], dict[str, float], Sequence[bool], str | None, Literal["a", True]],
)
def test_what_json_gives_already_is_not_converted(annotation: Any) -> None:
    def method(self: Any, value: annotation, constrained: Annotated[str, Field(max_length=3)] = "") -> None: ...

    assert the_tool(method).convert is None


@pytest.mark.requirement("C-12-tool-schema")
def test_an_int_gets_an_int_also_for_a_whole_number_with_a_point() -> None:
    def method(
        self: Any, count: int, limit: int | None = None, name: str = "", least: Annotated[int, Field(ge=1)] = 1
    ) -> None: ...

    given: dict[str, object] = {"count": 1, "limit": None, "name": "a"}
    assert taken(method, **given) == given
    found = taken(method, count=2.0, limit=3.0, name="a", least=4.0)
    assert found == {"count": 2, "limit": 3, "name": "a", "least": 4}
    assert [type(value) for value in found.values()] == [int, int, str, int]


def test_arguments_that_need_no_change_are_passed_on_as_they_are() -> None:
    def method(self: Any, count: int) -> None: ...

    arguments = {"count": 1}
    convert = the_tool(method).convert
    assert convert is not None
    assert convert(arguments) is arguments


@pytest.mark.requirement("C-12-tool-schema")
def test_other_types_are_made_from_their_json() -> None:
    def method(
        self: Any,
        colour: Colour,
        home: Address,
        point: Point,
        span: Range,
        when: datetime,
        wait: timedelta,
        where: Path,
        price: Decimal,
        names: set[str],
        pair: tuple[int, str],
        counts: list[int],
        either: int | str,
    ) -> None: ...

    assert taken(
        method,
        colour="blue",
        home={"title": "Mill"},
        point={"x": 1.0},
        span={"first": 1.0},
        when="2026-01-02T03:04:05",
        wait="PT5M",
        where="/tmp",
        price="1.10",
        names=["a"],
        pair=[1, "b"],
        counts=[1.0, 2],
        either="1",
    ) == {
        "colour": Colour.BLUE,
        "home": Address(title="Mill"),
        "point": Point(1),
        "span": {"first": 1},
        "when": datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001  as the argument says
        "wait": timedelta(minutes=5),
        "where": Path("/tmp"),
        "price": Decimal("1.10"),
        "names": {"a"},
        "pair": (1, "b"),
        "counts": [1, 2],
        "either": "1",
    }


def test_what_was_not_given_is_left_to_the_methods_own_default() -> None:
    def method(self: Any, when: date, marks: list[Colour] = [], until: date | None = None) -> None: ...  # noqa: B006

    assert taken(method, when="2026-01-02") == {"when": date(2026, 1, 2)}


def test_a_default_of_none_is_taken_whatever_the_type_says() -> None:
    def method(
        self: Any,
        text: str = None,  # type: ignore[assignment]  # noqa: RUF013  what people write
        said: Annotated[str, Field(min_length=2, description="words")] = None,  # type: ignore[assignment]  # noqa: RUF013
        whatever: Any = None,
        given: int | None = None,
    ) -> None: ...

    words = {"anyOf": [{"minLength": 2, "type": "string"}, {"type": "null"}], "default": None, "description": "words"}
    assert parameters(method)["properties"] == {
        "text": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "said": words,
        "whatever": {"default": None},
        "given": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    }
    assert taken(method, text=None, said=None) == {"text": None, "said": None}
    assert the_tool(method).definition.parameters.refusals({"said": "a"}) != ()


def test_a_default_that_only_the_field_knows_is_filled_in() -> None:
    def method(
        self: Any,
        limit: int = Field(5, ge=1, description="how many"),
        names: Annotated[list[str], Field(default_factory=lambda: ["all"])] = ...,  # type: ignore[assignment]
        size: Annotated[int, Field(default=3)] = 4,
    ) -> None: ...

    assert parameters(method)["properties"]["limit"] == {
        "type": "integer",
        "default": 5,
        "minimum": 1,
        "description": "how many",
    }
    assert taken(method)["limit"] == 5
    assert "size" not in taken(method)


def test_a_field_alias_is_the_arguments_name() -> None:
    def method(self: Any, from_: Annotated[str, Field(alias="from")], to: str = Field("", alias="until")) -> None: ...

    assert list(parameters(method)["properties"]) == ["from", "until"]
    assert taken(method, **{"from": "a", "until": "b"}) == {"from_": "a", "to": "b"}


def test_two_parameters_of_one_alias_are_refused() -> None:
    def method(self: Any, start: Annotated[str, Field(alias="from")], begin: str = Field("", alias="from")) -> None: ...

    with pytest.raises(InvalidDefinition, match=r"Provider\.method: two parameters have the alias 'from'"):
        the_tool(method)


@pytest.mark.parametrize("given", [{"count": "1"}, {"count": 1.5}, {"count": True}, {"count": 1, "other": 2}, {}])
def test_the_schema_refuses_what_python_would_coerce(given: dict[str, object]) -> None:
    def method(self: Any, count: int, when: date | None = None) -> None: ...

    assert the_tool(method).definition.parameters.refusals(given) != ()


def test_what_a_type_refuses_after_the_schema_is_told_by_pointer_without_the_value() -> None:
    def method(self: Any, tree: dict[str, list[Annotated[str, AfterValidator(never)]]], day: date) -> None: ...

    lines = refused(method, tree={"a/b~c": ["secret word"]}, day="2026-13-01")
    assert lines[0] == "/tree/a~1b~0c/0: *** is never right"
    assert lines[1].startswith("/day: ")
    assert "2026" not in lines[1]


def test_a_pointer_names_no_member_of_a_union() -> None:
    def method(self: Any, when: list[date | timedelta]) -> None: ...

    assert {line.split(":")[0] for line in refused(method, when=["2026-01-01", "never"])} == {"/when/1"}


def test_at_most_twenty_errors_are_told() -> None:
    def method(self: Any, days: list[date]) -> None: ...

    assert len(refused(method, days=["no"] * 30)) == 20


def test_the_text_of_a_validator_about_very_much_is_left_out() -> None:
    def everything(values: dict[str, object]) -> dict[str, object]:
        raise ValueError(f"no: {values}")

    def method(self: Any, values: Annotated[dict[str, Any], AfterValidator(everything)]) -> None: ...

    assert refused(method, values={str(number): number for number in range(1000)}) == ("/values: is refused",)
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    assert refused(method, values={"deep": deep})[0].startswith("/values: no: {'***'")


@pytest.mark.requirement("C-12-tool-context")
@pytest.mark.parametrize(
    "annotation",
    [CallContext, CallContext | None, Optional[CallContext], Annotated[CallContext, "ours"]],  # noqa: UP045
)
def test_a_context_is_in_no_schema(annotation: Any) -> None:
    def method(self: Any, text: str, context: annotation = None) -> None: ...

    assert list(parameters(method)["properties"]) == ["text"]


def test_two_contexts_are_refused() -> None:
    def method(self: Any, one: CallContext, two: CallContext | None) -> None: ...

    with pytest.raises(InvalidDefinition, match=r"Provider\.method: one and two are both annotated CallContext"):
        the_tool(method)


def test_a_context_without_annotation_is_refused_as_the_model_would_have_to_give_it() -> None:
    def plain(self: Any, text: str, context) -> None: ...  # type: ignore[no-untyped-def]
    def short(self: Any, text: str, *, ctx=None) -> None: ...  # type: ignore[no-untyped-def]
    def argument(self: Any, context: str, ctx: Any) -> None: ...

    for function, name in [(plain, "context"), (short, "ctx")]:
        with pytest.raises(
            InvalidDefinition,
            match=rf"Provider\.method: parameter '{name}' has no annotation: write `{name}: CallContext` for the",
        ):
            the_tool(function)
    assert list(parameters(argument)["properties"]) == ["context", "ctx"]


@pytest.mark.parametrize("annotation", [Principal, Principal | None, Annotated[Principal, "caller"]])
def test_a_caller_that_the_model_would_give_is_refused(annotation: Any) -> None:
    def method(self: Any, text: str, who: annotation) -> None: ...

    with pytest.raises(InvalidDefinition, match=r"Provider\.method: the model would give 'who', .* context\.principal"):
        the_tool(method)


@pytest.mark.requirement("C-12-tool-schema")
def test_a_result_that_is_an_object_has_an_output_schema() -> None:
    class Camel(BaseModel):
        model_config = ConfigDict(serialize_by_alias=True)
        postal_code: str = Field(alias="postalCode")

    def model(self: Any) -> Address: ...
    def aliased(self: Any) -> Camel: ...
    def data(self: Any) -> Point: ...
    def typed(self: Any) -> Range: ...

    outputs = [the_tool(function).definition.output_schema for function in (model, aliased, data, typed)]
    assert [list(schema.value["properties"]) for schema in outputs if schema] == [  # type: ignore[call-overload]
        ["title", "number"],
        ["postalCode"],
        ["x", "y", "marks"],
        ["first", "last"],
    ]


@pytest.mark.requirement("C-12-tool-schema")
def test_a_result_of_any_other_type_has_an_output_schema_too() -> None:
    def number(self: Any) -> int: ...
    def several(self: Any) -> list[Address]: ...
    def counts(self: Any) -> dict[str, int]: ...
    def perhaps(self: Any) -> str | None: ...

    outputs = [the_tool(function).definition.output_schema for function in (number, several, counts, perhaps)]
    assert [schema.value.get("type", "anyOf" in schema.value) for schema in outputs if schema] == [
        "integer",
        "array",
        "object",
        True,
    ]


def test_a_result_that_is_text_or_of_no_known_type_has_none() -> None:
    def text(self: Any) -> str: ...
    def silent(self: Any): ...
    def nothing(self: Any) -> None: ...
    def unknown(self: Any) -> "Nowhere": ...  # type: ignore[name-defined]  # noqa: F821
    def own(self: Any) -> ToolResult | int: ...

    tools = (text, silent, nothing, unknown, own)
    assert [the_tool(function).definition.output_schema for function in tools] == [None] * len(tools)


def test_parameters_that_cannot_be_passed_by_name_are_refused() -> None:
    def positional(self: Any, text: str, /) -> None: ...
    def many(self: Any, *texts: str) -> None: ...
    def anything(self: Any, **texts: str) -> None: ...
    def selfless() -> None: ...
    def forgotten(a: int, b: int) -> None: ...

    for function, words in [
        (positional, "parameter 'text' is positional-only"),
        (many, "parameter 'texts' takes any number of arguments"),
        (anything, "parameter 'texts' takes arguments of any name"),
        (selfless, "takes no self; write it as a method"),
        (forgotten, "takes no self: its first parameter is 'a'; write it as a method"),
    ]:
        with pytest.raises(InvalidDefinition, match=rf"Provider\.method:? {words}"):
            the_tool(function)


def test_a_type_without_a_schema_is_refused_with_its_parameter() -> None:
    class Opaque: ...

    def method(self: Any, text: str, thing: Opaque) -> None: ...

    with pytest.raises(InvalidDefinition, match=r"Provider\.method: parameter 'thing' of type .*Opaque"):
        the_tool(method)
