"""What hooks get of a call: arguments that they cannot change, and an end for every call."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from pydantic import BaseModel
from pydantic_core import to_json
from tests.execution.harness import Harness, cancelled, turns

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.hookspecs import hookimpl

pytestmark = pytest.mark.anyio

GIVEN: dict[str, Any] = {"text": "a", "rows": [1, {"n": 2}], "more": {"deep": [3]}}
CHANGES: dict[str, Callable[[Any], object]] = {
    "item": lambda given: given.__setitem__("text", "b"),
    "deleted": lambda given: given.pop("text"),
    "updated": lambda given: given.update(text="b"),
    "merged": lambda given: given.__ior__({"text": "b"}),
    "appended": lambda given: given["rows"].append(9),
    "item of a list": lambda given: given["rows"].__setitem__(0, 9),
    "sorted": lambda given: given["rows"].reverse(),
    "object in a list": lambda given: given["rows"][1].update(n=9),
    "nested": lambda given: given["more"]["deep"].clear(),
    "iterated": lambda given: next(iter(given.values())) and given["more"].setdefault("x", 1),
}


class Changing:
    """A plugin that tries to change the arguments wherever it gets them."""

    def __init__(self, change: Callable[[Any], object]) -> None:
        self.change = change
        self.refused: list[str] = []

    def attempt(self, hook: str, call: ToolCall) -> None:
        try:
            self.change(call.arguments)
        except TypeError as error:
            self.refused.append(f"{hook}: {error}")

    @hookimpl
    def before_call(self, call: ToolCall, context: CallContext) -> None:
        self.attempt("before_call", call)

    @hookimpl
    def change_result(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        self.attempt("change_result", call)

    @hookimpl
    def after_call(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        self.attempt("after_call", call)


class Seeing:
    """A plugin that keeps what it sees, in every way in which plugins write it down."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.ends: list[ToolStatus] = []

    @hookimpl
    def before_call(self, call: ToolCall, context: CallContext) -> None:
        arguments: Any = call.arguments
        self.seen += [json.loads(encode(arguments)) for encode in (json.dumps, orjson.dumps, to_json)]
        mine = copy.deepcopy(arguments)
        mine["text"], mine["rows"] = "mine", [*mine["rows"], 0]

    @hookimpl
    def after_call(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        self.ends.append(result.status)


@pytest.mark.requirement("C-12-hooks-read-only")
@pytest.mark.parametrize("change", CHANGES)
async def test_no_plugin_changes_what_the_tool_the_caller_or_another_plugin_has(harness: Harness, change: str) -> None:
    changing, seeing, given, got = Changing(CHANGES[change]), Seeing(), copy.deepcopy(GIVEN), list[object]()

    async def tool(call: ToolCall, context: object) -> str:
        got.append(call.arguments)
        return "done"

    result = await harness.call(tool, given, hooks=harness.hooks(changing, seeing))

    assert result.output == "done"
    assert (got, given, seeing.seen) == ([GIVEN], GIVEN, [GIVEN] * 3)
    why = "the arguments of a call are read-only in hooks; copy them, refuse the call, or change its result"
    assert changing.refused == [f"{hook}: {why}" for hook in ("before_call", "change_result", "after_call")]


class Item(BaseModel):
    price: int


@pytest.mark.requirement("C-12-hooks-read-only")
async def test_a_plugin_has_a_copy_of_what_the_arguments_were_converted_to(harness: Harness) -> None:
    got: list[object] = []

    async def tool(call: ToolCall, context: object) -> str:
        got.append(call.arguments["item"])  # type: ignore[index]
        return "done"

    changing = Changing(lambda given: setattr(given["item"], "price", 0))
    convert = lambda given: {"item": Item(price=given["item"])}  # noqa: E731
    await harness.call(tool, {"item": 5}, convert=convert, hooks=harness.hooks(changing))

    assert got == [Item(price=5)]


class Refusing:
    """A plugin that refuses every call with one reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    @hookimpl
    def before_call(self, call: ToolCall, context: CallContext) -> str:
        return self.reason


async def untouched(call: object, context: object) -> None:
    raise AssertionError("it was refused")


@pytest.mark.requirement("C-12-hooks-read-only")
async def test_a_reason_is_bounded_and_cleaned(harness: Harness) -> None:
    long = await harness.call(untouched, hooks=harness.hooks(Refusing("no " * 10_000_000)))
    hidden = await harness.call(untouched, hooks=harness.hooks(Refusing("no\u202e\ud800 way")))

    assert long.status is ToolStatus.DENIED
    assert len(long.output) < 2_100
    assert long.output.endswith("…")
    assert hidden.output == 'tool "tool" is not allowed: hook: no? way'


@pytest.mark.requirement("C-12-hooks-cancelled")
async def test_a_call_whose_caller_leaves_ends_for_plugins_too(harness: Harness) -> None:
    async def hangs(call: object, context: object) -> None:
        await asyncio.Event().wait()

    seeing = Seeing()
    running = asyncio.ensure_future(harness.call(hangs, copy.deepcopy(GIVEN), hooks=harness.hooks(seeing)))
    await turns(10)
    running.cancel()

    assert await cancelled(running)
    assert seeing.ends == [ToolStatus.CANCELLED]
