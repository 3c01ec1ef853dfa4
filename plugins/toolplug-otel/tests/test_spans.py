"""The span and the duration of a call, however it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from toolplug import CallContext, ToolStatus

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6-call-spans")]

OPERATION = {"gen_ai.operation.name": "execute_tool"}
SECRETS = ("the secret", "4711")


def described(span: Any) -> dict[str, object]:
    """The attributes beside those that every span has."""
    attributes = dict(span.attributes)
    assert attributes.pop("gen_ai.operation.name") == "execute_tool"
    assert attributes.pop("gen_ai.tool.call.id") == "c1"
    return attributes


async def test_a_call_that_succeeds_has_a_span_by_the_conventions(recorder: Any) -> None:
    async with recorder.open() as traced:
        assert (await traced.call("add", a=1, b=4711)).output == "4712"
        span = traced.span()
    assert (span.name, span.kind, span.parent) == ("execute_tool add", SpanKind.INTERNAL, None)
    assert dict(span.attributes) == {
        **OPERATION,
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.description": "Add two numbers.",
        "gen_ai.tool.type": "function",
    }
    assert (span.status.status_code, span.events, span.end_time > span.start_time) == (StatusCode.UNSET, (), True)
    assert traced.durations() == [({**OPERATION, "gen_ai.tool.name": "add"}, 1)]


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("fails", {}, ToolStatus.TOOL_ERROR),
        ("panics", {}, ToolStatus.PANIC),
        ("add", {"a": "4711"}, ToolStatus.INVALID_ARGUMENTS),
        ("waits", {}, ToolStatus.TIMEOUT),
        ("forbidden", {}, ToolStatus.DENIED),
    ],
)
async def test_a_call_that_fails_has_its_status_as_the_type_of_the_error_and_no_text(
    recorder: Any, tool: str, arguments: dict[str, object], status: ToolStatus
) -> None:
    name = "traced" if tool == "forbidden" else tool
    tools = {"traced": "deny", "waits": {"limits": {"timeout": "20ms"}}}
    async with recorder.open(probe={"tools": tools}) as traced:
        assert (await traced.call(name, **arguments)).status is status
        span = traced.span()
    assert span.name == f"execute_tool {name}"
    assert span.attributes["error.type"] == status.value
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    assert not any(secret in span.to_json() for secret in SECRETS)
    assert traced.durations() == [({**OPERATION, "gen_ai.tool.name": name, "error.type": status.value}, 1)]


async def test_a_call_over_its_rate_is_limited(recorder: Any) -> None:
    async with recorder.open(probe={"tools": {"add": {"limits": {"rate": "1/hour"}}}}) as traced:
        results = [await traced.call("add", a=1, b=2) for _ in range(2)]
        first, second = traced.spans()
    assert [result.status for result in results] == [ToolStatus.SUCCESS, ToolStatus.LIMITED]
    assert ("error.type" in first.attributes, second.attributes["error.type"]) == (False, "limited")


async def test_an_unknown_name_is_an_attribute_only(recorder: Any) -> None:
    async with recorder.open() as traced:
        assert (await traced.call("no\nsuch" + "x" * 1000)).status is ToolStatus.UNKNOWN_TOOL
        span = traced.span()
    name = "no\N{REPLACEMENT CHARACTER}such" + "x" * 249
    assert (span.name, described(span)) == ("execute_tool", {"gen_ai.tool.name": name, "error.type": "unknown_tool"})
    assert traced.durations() == [({**OPERATION, "error.type": "unknown_tool"}, 1)]


async def test_a_call_whose_caller_goes_away_is_cancelled(recorder: Any) -> None:
    async with recorder.open() as traced:
        began = asyncio.Event()
        context = CallContext(report=lambda *_: began.set())
        calling = asyncio.create_task(traced.call("waits", context))
        await began.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        span = traced.span()
    assert (span.attributes["error.type"], span.status.status_code) == ("cancelled", StatusCode.ERROR)
    assert traced.durations() == [({**OPERATION, "gen_ai.tool.name": "waits", "error.type": "cancelled"}, 1)]


async def test_calls_beside_one_another_have_spans_of_their_own(recorder: Any) -> None:
    async with recorder.open() as traced:
        results = await asyncio.gather(*(traced.call("add", a=number, b=1) for number in range(50)))
        spans = traced.spans()
    assert [result.output for result in results] == [str(number + 1) for number in range(50)]
    assert len({span.context.trace_id for span in spans}) == 50
    assert {span.parent for span in spans} == {None}
    assert traced.durations() == [({**OPERATION, "gen_ai.tool.name": "add"}, 50)]
