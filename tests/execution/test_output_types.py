"""Results against the output types that their tools declare."""

from __future__ import annotations

import datetime
import enum
import logging
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field, dataclasses
from tests.execution.harness import Harness

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.definition import ToolDefinition
from toolplug.providers.authoring import tool
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.registry import FunctionRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-3-output-type")]


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str


class Typed(TypedDict):
    name: str


@dataclasses.dataclass
class Point:
    x: float


class Item(BaseModel):
    name: str
    price: Decimal = Decimal("1.5")
    kept: Annotated[str, Field(exclude=True)] = ""


class Named(BaseModel):
    model_config = ConfigDict(extra="forbid", serialize_by_alias=True)

    name: str = Field(alias="theName")


async def returned(annotation: object, value: object) -> ToolResult:
    """The result of a tool with this annotation that returns this value."""

    class Plays(FunctionProvider):
        @tool
        async def play(self) -> annotation:  # type: ignore[valid-type]
            """Play."""
            return value

    Plays.__annotations__ = {}
    async with FunctionRegistry({"plays": Plays()}) as registry:
        return await registry.execute(ToolCall("c1", "play", {}), CallContext())


NOW = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
FITTING: Sequence[tuple[object, object]] = [
    (int, 1),
    (int, 2**70),
    (float, 1),
    (int | None, None),
    (list[str] | str, "a"),
    (Annotated[str, Field(min_length=1)], "a"),
    (Literal["a", 1], 1),
    (Decimal, Decimal("1.50")),
    (Path, Path("a")),
    (datetime.datetime, NOW),
    (datetime.timedelta, datetime.timedelta(seconds=1)),
    (uuid.UUID, uuid.UUID(int=1)),
    (list[uuid.UUID], [uuid.UUID(int=1)]),
    (dict[str, datetime.datetime], {"at": NOW}),
    (dict[int, str], {1: "a"}),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (Pair, Pair(1, "a")),
    (Typed, {"name": "a"}),
    (Colour, Colour.RED),
    (list[Colour], [Colour.RED]),
    (Point, Point(1.0)),
    (Item, Item(name="a")),
    (Item, {"name": "a", "price": "1"}),
    (list[Item], [Item(name="a")]),
    (Mapping[str, Item], {"a": Item(name="a")}),
    (Named, Named(theName="a")),
    (Any, object.__name__),
]


@pytest.mark.parametrize(("annotation", "value"), FITTING)
async def test_a_value_of_the_declared_type_is_a_success(annotation: object, value: object) -> None:
    assert (await returned(annotation, value)).status is ToolStatus.SUCCESS


@pytest.mark.parametrize(
    ("annotation", "value", "where"),
    [
        (int, "x", '/: must be of type "integer"'),
        (int, None, '/: must be of type "integer"'),
        (int, "1", '/: must be of type "integer"'),
        (Item, {"price": "1"}, '/: "name" is required'),
        (list[Item], [{"name": "a"}, {"name": 1}], '/1/name: must be of type "string"'),
        (Point, {}, '/: "x" is required'),
        (tuple[int, str], [1], "/: "),
        (Annotated[int, Field(ge=0)], -1, "/: "),
        (Literal["a"], "b", "/: "),
        (int | None, [], "/: fits none of the alternatives"),
    ],
)
async def test_a_value_of_another_type_is_an_error_and_its_place_is_in_the_log(
    annotation: object, value: object, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await returned(annotation, value)
    text = 'result of tool "play" does not match its output type'
    assert result == ToolResult("c1", "play", text, ToolStatus.TOOL_ERROR)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"result of 'play' (provider 'plays'): {where}" in caplog.text


class Written(FunctionProvider):
    """Lists a tool by hand, whose results it makes itself."""

    output: Mapping[str, object]
    result: ToolResult

    def tools(self) -> list[ToolDefinition]:
        return [ToolDefinition(name="play", parameters={"type": "object"}, output_schema=self.output)]

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        return self.result


async def written(output: Mapping[str, object], result: ToolResult) -> ToolResult:
    provider = Written()
    provider.output, provider.result = output, result
    async with FunctionRegistry({"plays": provider}) as registry:
        return await registry.execute(ToolCall("c1", "play", {}), CallContext())


COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_structured_content_of_a_result_is_checked_and_its_text_and_errors_are_not() -> None:
    assert (await written(COUNT, ToolResult(structured={"n": "1"}))).status is ToolStatus.TOOL_ERROR
    assert (await written(COUNT, ToolResult(structured={"n": 1}))).structured == {"n": 1}
    assert (await written(COUNT, ToolResult(output="none"))).output == "none"
    failed = ToolResult(output="it fell", status=ToolStatus.TOOL_ERROR, structured={"why": 1})
    assert (await written(COUNT, failed)).output == "it fell"


async def test_an_output_schema_that_is_none_costs_no_result(caplog: pytest.LogCaptureFixture) -> None:
    assert (await written({"type": "no such type"}, ToolResult(structured={"n": 1}))).structured == {"n": 1}
    assert "results of 'play' are not checked, as its output schema is invalid" in caplog.text


async def test_a_result_that_takes_too_long_to_validate_is_passed_on(harness: Harness) -> None:
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "object"}}
    rows = [{"n": number} for number in range(40_000)]
    output = ToolDefinition(name="tool", parameters={"type": "object"}, output_schema=schema).output_schema
    assert output is not None
    assert output.refusals(rows) == ("/: too large to validate",)

    async def play(call: object, context: object) -> object:
        return rows

    assert (await harness.call(play, output=output, max_result_bytes=10**9)).structured == rows
