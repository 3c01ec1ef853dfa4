"""What a tool returned, as text for the model and as a JSON value for the caller."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import json
import logging
import math
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_serializer
from tests.execution.harness import Harness

from toolplug import FunctionRegistry, ToolUnavailable, tool
from toolplug.catalog.call import ToolCall, ToolResult, ToolStatus
from toolplug.execution.results import round_up, timed_out
from toolplug.signatures.values import as_json

pytestmark = pytest.mark.anyio

NOT_JSON = ToolResult("c1", "tool", 'result of tool "tool" is not JSON', ToolStatus.TOOL_ERROR)


class Colour(enum.Enum):
    RED = "red"


class Odd(enum.Enum):
    NOT_A_NUMBER = math.nan


class Word(enum.StrEnum):
    ONE = "one"


@dataclasses.dataclass
class Point:
    x: float
    y: object = None


class Pair(NamedTuple):
    left: int
    right: int


class Dated(BaseModel):
    when: datetime.date


class Model(Dated):
    tags: set[float] = set()
    inner: Point | None = None


class Rude(BaseModel):
    value: int = 1

    @field_serializer("value")
    def leave(self, value: int) -> int:
        raise SystemExit("secret")


def cycle() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made


def generator() -> Iterator[int]:
    yield 1


def nested(depth: int) -> list[object]:
    made: list[object] = []
    for _ in range(depth):
        made = [made]
    return made


def returning(value: object) -> Any:
    async def tool(call: object, context: object) -> object:
        return value

    return tool


DAY = datetime.date(2026, 1, 2)
MOMENT = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
ID = uuid.UUID(int=1)

BIG_POINT = {"1": {"x": 2**64, "y": "red"}}

JSON: dict[str, tuple[object, str, object]] = {
    "nothing": (None, "null", None),
    "true": (True, "true", True),
    "a number": (1.5, "1.5", 1.5),
    "an object": ({"a": [1, None, "NaN"]}, '{"a":[1,null,"NaN"]}', {"a": [1, None, "NaN"]}),
    "text in other scripts": (["ä", "日本"], '["ä","日本"]', ["ä", "日本"]),
    "a tuple": ((1, 2), "[1,2]", [1, 2]),
    "a named tuple": (Pair(1, 2), "[1,2]", [1, 2]),
    "an ordered mapping": (OrderedDict(a=1), '{"a":1}', {"a": 1}),
    "a dataclass": (Point(1.0, [DAY]), '{"x":1.0,"y":["2026-01-02"]}', {"x": 1.0, "y": ["2026-01-02"]}),
    "a model": (Dated(when=DAY), '{"when":"2026-01-02"}', {"when": "2026-01-02"}),
    "models in a list": ([Dated(when=DAY)], '[{"when":"2026-01-02"}]', [{"when": "2026-01-02"}]),
    "an enumeration": (Colour.RED, '"red"', "red"),
    "an identifier": (ID, f'"{ID}"', str(ID)),
    "a moment": (MOMENT, '"2026-01-02T03:00:00Z"', "2026-01-02T03:00:00Z"),
    "an integer of 65 bits": ([2**64], "[18446744073709551616]", [2**64]),
    "numbers as keys": ({1: "a"}, '{"1":"a"}', {"1": "a"}),
    "300 levels": (nested(300), "[" * 301 + "]" * 301, nested(300)),
    "a decimal number": ({"price": Decimal("1.50")}, '{"price":"1.50"}', {"price": "1.50"}),
    "a path": ([Path("/etc/hosts")], '["/etc/hosts"]', ["/etc/hosts"]),
    "a set": ({"tags": {1}}, '{"tags":[1]}', {"tags": [1]}),
    "a duration": (datetime.timedelta(hours=1), '"PT1H"', "PT1H"),
    "keys of other types": ({ID: {DAY: 1}}, f'{{"{ID}":{{"2026-01-02":1}}}}', {str(ID): {"2026-01-02": 1}}),
    "everything at once": ({1: Point(2**64, Colour.RED)}, '{"1":{"x":18446744073709551616,"y":"red"}}', BIG_POINT),
}

REFUSED: dict[str, object] = {
    "bytes": b"x",
    "bytes inside": {"a": [b"x"]},
    "a generator": generator(),
    "a number inside a set": {math.nan},
    "NaN": math.nan,
    "infinity inside": {"a": [1, {"b": (math.inf,)}]},
    "NaN beside the word": {"word": "NaN", "value": math.nan},
    "NaN in a model": Model(when=DAY, inner=Point(math.nan)),
    "infinity in a set of a model": Model(when=DAY, tags={math.inf}),
    "NaN in a dataclass": [Point(math.nan)],
    "NaN in an enumeration": [None, Odd.NOT_A_NUMBER],
    "a cycle": cycle(),
    "200,000 levels": nested(200_000),
    "a lone surrogate": "\ud800",
    "a lone surrogate inside": ["\ud800"],
    "a lone surrogate as key": {"\ud800": 1},
    "a function": generator,
    "an object": object(),
    "an exception": ValueError("x"),
}


@pytest.mark.requirement("C-3-success-json", "C-3-structured", "H-provider-returns-none")
@pytest.mark.parametrize("name", JSON)
async def test_json_is_compact_text_and_the_value_itself(harness: Harness, name: str) -> None:
    value, text, structured = JSON[name]

    assert await harness.call(returning(value)) == ToolResult("c1", "tool", text, ToolStatus.SUCCESS, structured)


@pytest.mark.requirement(
    "C-3-not-json",
    "H-provider-returns-bytes",
    "H-provider-returns-generator",
    "H-provider-returns-nan",
    "H-provider-returns-cycle",
    "H-fact-lone-surrogate",
)
@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_not_json_is_an_error_that_says_so(harness: Harness, name: str) -> None:
    assert (await harness.call(returning(REFUSED[name])))._replace(metadata={}) == NOT_JSON._replace(metadata={})


@pytest.mark.requirement("C-3-only-cancellation")
async def test_a_serializer_that_leaves_the_process_is_an_error_result(harness: Harness) -> None:
    assert await harness.call(returning(Rude())) == NOT_JSON


@pytest.mark.requirement("C-3-success-text")
async def test_text_of_a_subclass_is_plain_text(harness: Harness) -> None:
    result = await harness.call(returning(Word.ONE))

    assert (result.output, type(result.output), result.structured) == ("one", str, None)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.judge
@pytest.mark.requirement("C-3-success-json")
@given(JSON_VALUES)
def test_every_json_value_is_read_back_the_same(value: object) -> None:
    kept = as_json(value)

    assert kept is not None
    assert kept.value == value
    assert json.loads(kept.text) == value


@pytest.mark.requirement("H-provider-returns-nan")
@given(JSON_VALUES, st.sampled_from([math.nan, math.inf, -math.inf]))
def test_no_value_with_a_nan_is_json_wherever_it_stands(value: object, number: float) -> None:
    assert as_json([value, {"a": (number,)}, None]) is None


@pytest.mark.requirement("C-3-tool-error-result")
async def test_a_returned_result_is_filled_in(harness: Harness) -> None:
    own = ToolResult(
        output="not found", status=ToolStatus.TOOL_ERROR, structured={"a": 1}, metadata={"code": "x"}, retry_after_s=1.0
    )

    assert await harness.call(returning(own)) == own._replace(call_id="c1", name="tool")


async def test_a_returned_result_without_text_shows_its_structure(harness: Harness) -> None:
    result = await harness.call(returning(ToolResult(structured=Point(1.0))))

    assert (result.output, result.structured) == ('{"x":1.0,"y":null}', {"x": 1.0, "y": None})


@pytest.mark.requirement("C-3-not-json")
@pytest.mark.parametrize(
    "own", [{"structured": math.nan}, {"metadata": {"a": b"x"}}, {"parts": ({"a": math.inf},)}, {"output": "\ud800"}]
)
async def test_a_returned_result_with_anything_that_is_not_json_is_refused(
    harness: Harness, own: dict[str, Any]
) -> None:
    assert await harness.call(returning(ToolResult(**own))) == NOT_JSON


@pytest.mark.requirement("C-3-panic")
@pytest.mark.parametrize("own", [{"status": "splendid"}, {"status": "cancelled"}, {"metadata": 5}, {"output": b"x"}])
async def test_a_returned_result_of_no_sense_is_a_panic(harness: Harness, own: dict[str, Any]) -> None:
    assert (await harness.call(returning(ToolResult(**own)))).status is ToolStatus.PANIC


async def test_a_returned_results_pause_is_one_that_can_be_waited(harness: Harness) -> None:
    result = await harness.call(returning(ToolResult(output="x", retry_after_s=math.nan)))

    assert result.retry_after_s is None


@pytest.mark.requirement("C-3-timeout", "C-3-limited-retry-after")
@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0"),
        (0.05, "0.05"),
        (0.29, "0.29"),
        (1.1, "1.1"),
        (60.0, "60"),
        (86400.0, "86400"),
        (0.09993, "0.1"),
        (4.99996, "5"),
        (0.0004, "0.001"),
    ],
)
def test_what_a_deadline_has_lost_until_it_is_looked_at_is_not_shown(seconds: float, shown: str) -> None:
    assert round_up(seconds) == shown


@pytest.mark.requirement("C-3-timeout")
@pytest.mark.parametrize(("seconds", "shown"), [(0.20031, "0.2"), (0.19987, "0.2"), (0.0012, "0.001")])
def test_a_clock_of_whole_milliseconds_makes_no_more_of_a_deadline(seconds: float, shown: str) -> None:
    assert timed_out(ToolCall("c1", "tool"), seconds).output == f'tool "tool" timed out after {shown} s'


class Broken(BaseModel):
    value: int = 1

    @field_serializer("value")
    def show(self, value: int) -> int:
        raise KeyError("secret")


BROKEN_LINE = 1 + next(n for n, text in enumerate(Path(__file__).read_text().splitlines()) if 'KeyError("se' in text)

UNREADABLE: dict[str, tuple[object, str]] = {
    "a generator": ({"rows": [1, generator()]}, "generator at /rows/1"),
    "a number": ([Point(math.nan)], "nan at /0/x"),
    "bytes": ({"a/b": b"x"}, "bytes at /a~1b"),
    "an object": (object(), "object at /"),
    "a cycle": ({"self": cycle()}, "cycle at /self/0"),
    "a key": ({"a": {object(): 1}}, "key of type object at /a"),
    "text": (["\ud800"], "text with a lone surrogate at /0"),
    "a big integer": ({"n": 10**4300}, "integer of more than 4,300 digits at /n"),
    "a part of a result": (ToolResult(metadata={"a": generator()}), "generator at /metadata/a"),
}


@pytest.mark.requirement("C-3-not-json")
@pytest.mark.parametrize("name", UNREADABLE)
async def test_the_log_says_which_part_of_a_result_is_not_json(
    harness: Harness, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    value, what = UNREADABLE[name]

    assert await harness.call(returning(value)) == NOT_JSON
    assert f"result of tool 'tool' of provider 'plays' is not JSON: {what} (call c1)" in caplog.messages


@pytest.mark.requirement("C-3-not-json")
async def test_the_log_says_that_a_call_was_not_awaited(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    with closing(asyncio.sleep(0)) as forgotten:
        assert await harness.call(returning([forgotten])) == NOT_JSON
    assert "is not JSON: coroutine that was not awaited at /0 (call c1)" in caplog.text


@pytest.mark.requirement("C-3-not-json-pointer")
async def test_the_log_names_the_line_of_a_serializer_that_raised(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    assert await harness.call(returning([Broken()])) == NOT_JSON

    assert any(f"raised KeyError at {__file__}:{BROKEN_LINE} in Broken.show" in text for text in caplog.messages)
    assert "secret" not in caplog.text


@pytest.mark.parametrize("name", ["shop.fails", "shop__fails"])
async def test_the_log_names_a_tool_as_its_provider_does(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """By whatever name it is called, so that one search finds all lines of a tool."""

    @tool
    def fails(how: Literal["crash", "text"]) -> object:
        if how == "crash":
            raise KeyError
        return object()

    caplog.set_level(logging.INFO, logger="toolplug")
    async with FunctionRegistry([fails]) as registry:
        tools = registry.view(lambda catalog: catalog.prefixed("shop"))
        results = [await tools.call(name, how=how) for how in ("crash", "text", "other")]

    assert [result.name for result in results] == [name] * 3
    said = [line.partition(" raised ")[0].partition(" at ")[0] for line in caplog.messages]
    assert said == [
        "tool 'fails' of provider 'fails'",
        "result of tool 'fails' of provider 'fails' is not JSON: object",
        "fails: invalid arguments",
    ]


async def test_metadata_of_what_is_unavailable_may_have_any_names() -> None:
    @tool
    def price() -> str:
        "Say a price."
        raise ToolUnavailable("closed", code="closed", metadata={"call": 1, "reason": "holidays", "code": "mine"})

    async with FunctionRegistry([price]) as registry:
        result = await registry.call("price")
    assert (result.status, result.metadata) == (
        "unavailable",
        {"call": 1, "reason": "holidays", "code": "closed"},
    )
