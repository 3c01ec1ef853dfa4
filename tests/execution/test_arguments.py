"""Arguments on their way to a tool: decoded once, private to the call, and nothing but JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.execution.harness import Harness

from toolplug.catalog.call import ToolCall, ToolStatus
from toolplug.errors import InvalidArguments
from toolplug.signatures.values import decode_arguments

pytestmark = pytest.mark.anyio


def deep(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(levels - 1):
        made = {"a": made}
    return made


def cyclic() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["a"] = [made]
    return made


GOOD: dict[str, tuple[Any, dict[str, Any]]] = {
    "an object": ({"a": 1}, {"a": 1}),
    "text": ('{"a": [1]}', {"a": [1]}),
    "bytes": (b'{"a": null}', {"a": None}),
    "empty text": ("", {}),
    "empty bytes": (b"", {}),
    "white space around": (' {"a":1}\n', {"a": 1}),
    "an integer of 65 bits as text": ('{"a":18446744073709551617}', {"a": 18446744073709551617}),
    "a negative integer of 64 bits": ('{"a":[-9223372036854775809]}', {"a": [-9223372036854775809]}),
    "an integer of 4300 digits as text": ('{"a":' + "9" * 4300 + "}", {"a": 10**4300 - 1}),
    "an integer of 4300 digits as object": ({"a": [1 - 10**4300]}, {"a": [1 - 10**4300]}),
    "a read-only mapping": (MappingProxyType({"a": (1, {"b": True})}), {"a": [1, {"b": True}]}),
    "an integer of 65 bits as object": ({"a": 2**64}, {"a": 2**64}),
    "128 levels": (deep(128), deep(128)),
    "128 levels of text": (json.dumps(deep(128)), deep(128)),
    "200 braces in a text": (json.dumps({"a": "{" * 200}), {"a": "{" * 200}),
    "megabytes": ('{"a": "' + "x" * 5_000_000 + '"}', {"a": "x" * 5_000_000}),
}

BAD: dict[str, tuple[Any, str]] = {
    "an array": ("[1]", "/: not an object but an array"),
    "a text": ('"secret"', "/: not an object but text"),
    "a number": ("1.5", "/: not an object but a number"),
    "a truth": ("true", "/: not an object but true or false"),
    "null": ("null", "/: not an object but null"),
    "half an object": ('{"secret', "/: not JSON: EOF while parsing a string at line 1 column 8"),
    "NaN": ('{"a":NaN}', "/: not JSON: expected value at line 1 column 6"),
    "infinity": ('{"a":1e400}', "/a: a number out of range; integers may have 4,300 digits"),
    "two documents": ("{} {}", "/: not JSON: trailing characters at line 1 column 4"),
    "white space": ("  ", "/: not JSON: EOF while parsing a value at line 1 column 2"),
    "not UTF-8": (b'{"a":"\xff"}', "/: not JSON: invalid unicode code point at line 1 column 7"),
    "a lone surrogate": ('{"a":"\ud800"}', "/: not JSON: a lone surrogate"),
    "a key twice": ('{"a":1,"a":2}', '/: duplicate key "a"'),
    "a key twice, inside": ('{"a":[{"b":1,"c":{},"\\u0062":2}]}', '/: duplicate key "b"'),
    "a key twice, and too deep": ('{"a":' + "[" * 300 + "]" * 300 + ',"a":1}', '/: duplicate key "a"'),
    "2000 levels of text": ('{"a":' * 2000 + "1" + "}" * 2000, "/: more than 128 levels deep"),
    "129 levels of text": (json.dumps(deep(129)), "/: more than 128 levels deep"),
    "129 levels of arrays": ('{"a":' + "[" * 128 + "]" * 128 + "}", "/: more than 128 levels deep"),
    "4301 digits of text": (
        '{"a":{"b":' + "9" * 4301 + "}}",
        "/a/b: a number out of range; integers may have 4,300 digits",
    ),
    "4301 digits as object": ({"a": -(10**4300)}, "/a: an integer of more than 4,300 digits"),
    "4301 digits inside an object": ({"a": [10**4300]}, "/a: an integer of more than 4,300 digits"),
    "129 levels": (deep(129), "/: more than 128 levels deep"),
    "a cycle": (cyclic(), "/: more than 128 levels deep"),
    "a set": ({"a": {"b": {"secret"}}}, "/a/b: not JSON: a value of type set"),
    "bytes inside": ({"a": [b"secret"]}, "/a: not JSON: a value of type bytes"),
    "a Python NaN": ({"a": float("nan")}, "/a: a number out of range; integers may have 4,300 digits"),
    "a number as inner key": ({"a": {1: 2}}, "/a: not JSON: a key of type int"),
}


class Keeping:
    """A target that keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def __call__(self, call: ToolCall, context: object) -> str:
        self.calls.append(call.arguments)
        return "ran"


@pytest.mark.parametrize("name", GOOD)
async def test_a_tool_gets_its_arguments_as_an_object(harness: Harness, name: str) -> None:
    given, expected = GOOD[name]
    tool = Keeping()

    assert (await harness.call(tool, given)).status is ToolStatus.SUCCESS
    assert tool.calls == [expected]


@pytest.mark.requirement("C-3-invalid-not-json", "C-3-invalid-not-object", "H-fact-lone-surrogate")
@pytest.mark.parametrize("name", BAD)
async def test_what_is_no_json_object_reaches_no_provider(harness: Harness, name: str) -> None:
    given, line = BAD[name]
    tool = Keeping()

    result = await harness.call(tool, given)

    assert (result.status, result.output) == (
        ToolStatus.INVALID_ARGUMENTS,
        f'invalid arguments for tool "tool"\n{line}',
    )
    assert tool.calls == []


async def test_a_number_as_key_reaches_no_provider(harness: Harness) -> None:
    tool = Keeping()

    assert (await harness.call(tool, {1: 2})).status is ToolStatus.INVALID_ARGUMENTS
    assert tool.calls == []


@pytest.mark.requirement("H-provider-mutates-arguments")
async def test_a_tool_that_changes_its_arguments_changes_nobody_elses(harness: Harness) -> None:
    async def tool(call: ToolCall, context: object) -> str:
        arguments: Any = call.arguments
        arguments["list"].append(4)
        arguments["object"]["b"] = 1
        arguments["new"] = True
        return "changed"

    given = {"list": [1, [2]], "object": {"a": {}}}
    flat: dict[str, Any] = {"a": 1}

    async def flat_tool(call: ToolCall, context: object) -> None:
        call.arguments.clear()  # type: ignore[union-attr]

    await harness.call(tool, given)
    await harness.call(flat_tool, flat)

    assert given == {"list": [1, [2]], "object": {"a": {}}}
    assert flat == {"a": 1}


@pytest.mark.requirement("C-3-invalid-not-json")
@given(st.text() | st.binary())
def test_any_text_is_an_object_or_refused(text: str | bytes) -> None:
    with suppress(InvalidArguments):
        assert isinstance(decode_arguments(text), dict)
