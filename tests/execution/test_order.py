"""Which of two refusals a caller hears: the order of the steps around a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from tests.execution.harness import Harness, called, turns

from toolplug.catalog.call import CallContext, Principal, ToolResult
from toolplug.catalog.plan import Plan, PolicyGate, TenantsGate
from toolplug.execution.limiters import Breaker, ConcurrencyLimit, RateLimit
from toolplug.execution.run import run
from toolplug.hookspecs import hookimpl

pytestmark = pytest.mark.anyio


class Vetoing:
    """A plugin that refuses every call."""

    @hookimpl
    def before_call(self) -> str:
        return "vetoed"


class Remembering:
    """A replay that has an answer to every call."""

    async def begin(self, plan: object, call: object, context: object, seconds: float) -> ToolResult:
        return ToolResult(output="replayed")

    async def finish(self, plan: Plan, context: CallContext, result: ToolResult | None) -> None:
        raise AssertionError("a replayed call is not made")


def broken() -> Breaker:
    breaker = Breaker(1, 60.0, "plays", clock=lambda: -60.0)
    breaker.open = True
    return breaker


def refuse(arguments: object) -> dict[str, object]:
    raise SystemExit("conversion")


Step = tuple[str, dict[str, Any], str]

STEPS: list[Step] = [
    ("hidden", {"gates": (TenantsGate(frozenset(), "line"),)}, "no builtin provider handles"),
    ("policy", {"gates": (PolicyGate("line"),)}, "policy"),
    ("decode", {"arguments": "[]"}, "not an object"),
    ("validate", {"parameters": {"type": "object", "required": ["a"]}}, "required"),
    ("convert", {"convert": refuse}, "panicked"),
    ("hooks", {"hooks": Vetoing()}, "vetoed"),
    ("replay", {"replay": Remembering()}, "replayed"),
    ("abandoned", {"full": True}, "abandoned calls"),
    ("breaker", {"limiters": (broken(),)}, "its breaker is open after"),
    ("rate", {"limiters": (RateLimit(1, 3600, "plays"),)}, "takes 1 call"),
    ("concurrency", {"limiters": (ConcurrencyLimit(0, 0, "plays"),)}, "running already"),
    ("target", {}, "ran"),
]


def both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {
        key: first.get(key, ()) + second.get(key, ()) if key in {"gates", "limiters"} else {**second, **first}[key]
        for key in {**first, **second}
    }


@pytest.mark.requirement("C-3-gates-order")
@pytest.mark.parametrize(("earlier", "later"), list(combinations(STEPS, 2)), ids=lambda step: step[0])
async def test_the_earlier_of_two_steps_answers_and_the_later_is_not_asked(
    harness: Harness, earlier: Step, later: Step
) -> None:
    rules = both(earlier[1], later[1])
    arguments = rules.pop("arguments", {})
    if rules.pop("full", False):
        harness.abandoned.running = harness.abandoned.limit
    if "hooks" in rules:
        rules["hooks"] = harness.hooks(rules["hooks"])

    for limiter in rules.get("limiters", ()):
        if isinstance(limiter, RateLimit):
            await limiter.admit(0.0)

    async def tool(call: object, context: object) -> str:
        return "ran"

    context = CallContext(principal=Principal(), idempotency_key="key")
    plan = harness.plan(tool, **rules)
    result = await run(plan, called(arguments), context, True)

    assert earlier[2] in result.output


@pytest.mark.requirement("C-3-gates-order", "LAW-3")
@pytest.mark.parametrize("later", STEPS, ids=lambda step: step[0])
async def test_a_closed_switch_comes_before_everything(harness: Harness, later: Step) -> None:
    rules = dict(later[1])
    arguments = rules.pop("arguments", {})
    rules.pop("full", None)
    if "hooks" in rules:
        rules["hooks"] = harness.hooks(rules["hooks"])
    harness.switch.open = False

    async def tool(call: object, context: object) -> str:
        return "ran"

    plan = harness.plan(tool, **rules)
    result = await run(plan, called(arguments), CallContext(), True)

    assert result.output == 'no builtin provider handles tool "tool"'


@pytest.mark.requirement("C-3-gates-order")
async def test_what_a_refused_call_took_is_given_back(harness: Harness) -> None:
    permits, breaker = ConcurrencyLimit(1, 0, "plays"), Breaker(1, 60.0, "plays")
    full = ConcurrencyLimit(0, 0, "other")

    async def tool(call: object, context: object) -> str:
        return "ran"

    for _ in range(3):
        assert "other running already" in (await harness.call(tool, limiters=(breaker, permits, full))).output
    assert (await harness.call(tool, limiters=(breaker, permits))).output == "ran"


@pytest.mark.requirement("C-3-deadline-from-entry")
async def test_the_wait_in_a_queue_counts_towards_the_deadline(harness: Harness) -> None:
    permits = ConcurrencyLimit(0, 1, "plays")
    began: list[Callable[[], object]] = []

    async def tool(call: object, context: object) -> None:
        began.append(tool)

    result = await harness.call(tool, timeout_s=0.01, limiters=(permits,))

    assert result.output == 'tool "tool" timed out after 0.01 s'
    assert (began, harness.counted()) == ([], {"timeout": 1})


@pytest.mark.requirement("C-3-deadline-from-entry")
async def test_a_tool_gets_only_the_time_that_its_queue_left(harness: Harness) -> None:
    permits, release = ConcurrencyLimit(1, 1, "plays"), asyncio.Event()
    seen: list[float] = []

    async def holds(call: object, context: object) -> None:
        await release.wait()

    async def tool(call: object, context: CallContext) -> None:
        assert context.deadline is not None
        seen.append(context.deadline)

    first = asyncio.ensure_future(harness.call(holds, limiters=(permits,)))
    await turns(3)
    second = asyncio.ensure_future(harness.call(tool, timeout_s=20.0, limiters=(permits,)))
    await turns(3)
    queued_by = asyncio.get_running_loop().time()
    asyncio.get_running_loop().call_later(0.02, release.set)
    await asyncio.gather(first, second)

    assert seen[0] < queued_by + 20.01
