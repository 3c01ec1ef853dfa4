"""Host-wide hooks around a call: their order, their veto, what they hear."""

from __future__ import annotations

import pytest
from tests.execution.harness import Harness

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus

pytestmark = pytest.mark.anyio


class Hearing:
    """An observer that writes down what it hears; may veto, may fail."""

    def __init__(self, name: str, heard: list[tuple[str, ...]], *, veto: str | None = None) -> None:
        self.name = name
        self.heard = heard
        self.veto = veto

    async def before(self, call: ToolCall, context: CallContext, within_s: float) -> str | None:
        self.heard.append((self.name, "before", call.name, str(call.arguments)))
        return self.veto

    async def after(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        self.heard.append((self.name, "after", result.output))


class Failing(Hearing):
    async def after(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        raise ValueError("an observer that breaks its promise")


async def tool(call: object, context: object) -> str:
    return "ran"


async def test_hooks_hear_the_call_and_its_result_in_order(harness: Harness) -> None:
    heard: list[tuple[str, ...]] = []
    observers = (Hearing("one", heard), Hearing("two", heard))

    await harness.call(tool, '{"a": 1}', observers=observers)

    assert heard == [
        ("one", "before", "tool", "{'a': 1}"),
        ("two", "before", "tool", "{'a': 1}"),
        ("one", "after", "ran"),
        ("two", "after", "ran"),
    ]


async def test_a_veto_is_a_refusal_that_every_hook_hears(harness: Harness) -> None:
    heard: list[tuple[str, ...]] = []
    observers = (Hearing("one", heard, veto="not today"), Hearing("two", heard))

    result = await harness.call(tool, observers=observers)

    text = 'tool "tool" is not allowed: hook: not today'
    assert (result.status, result.output) == (ToolStatus.DENIED, text)
    assert heard == [("one", "before", "tool", "{}"), ("one", "after", text), ("two", "after", text)]


@pytest.mark.requirement("C-3-only-cancellation")
async def test_an_observer_that_breaks_its_promise_does_not_reach_the_caller(harness: Harness) -> None:
    assert (await harness.call(tool, observers=(Failing("one", []),))).status is ToolStatus.PANIC
    assert harness.counted() == {"panic": 1}
