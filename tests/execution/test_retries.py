"""What is tried again, how often, and that nobody waits past the deadline for it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.execution.harness import Harness, at_rest, cancelled, turns
from tests.virtual_time import VIRTUAL

from toolplug.catalog.call import ToolCall, ToolResult, ToolStatus
from toolplug.catalog.plan import Retry
from toolplug.errors import ToolError
from toolplug.execution.limiters import Breaker, ConcurrencyLimit

pytestmark = pytest.mark.anyio

SOON = ToolError("busy", retry_after_s=0.0)


class Script:
    """A target whose attempts end as written; the last end is repeated."""

    def __init__(self, *ends: object, turn: bool = False) -> None:
        self.ends = ends
        self.turn = turn
        self.arguments: list[dict[str, Any]] = []

    async def __call__(self, call: ToolCall, context: object) -> object:
        arguments: Any = call.arguments
        self.arguments.append(dict(arguments))
        arguments["attempt"] = len(self.arguments)
        if self.turn:
            await asyncio.sleep(0)
        end = self.ends[min(len(self.arguments), len(self.ends)) - 1]
        if isinstance(end, BaseException):
            raise end
        return end


@pytest.mark.parametrize("turn", [False, True], ids=["at once", "after a turn"])
async def test_a_panic_is_tried_again_with_arguments_of_its_own(harness: Harness, turn: bool) -> None:
    tool = Script(ValueError(), SystemExit(), "third", turn=turn)

    result = await harness.call(tool, {"a": 1}, retry=Retry(2))

    assert (result.output, tool.arguments) == ("third", [{"a": 1}] * 3)
    assert harness.counted() == {"success": 1}
    assert harness.idle() == (0, 0, 0)


async def test_a_tool_error_with_a_pause_is_tried_again_and_the_last_result_counts(harness: Harness) -> None:
    tool = Script(SOON, ToolError("busy still", retry_after_s=0.001))

    result = await harness.call(tool, retry=Retry(2))

    assert (result.output, len(tool.arguments)) == ("busy still", 3)
    assert harness.counted() == {"tool_error": 1}


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (ToolError("no"), ToolStatus.TOOL_ERROR),
        (ToolResult(output="later", status=ToolStatus.LIMITED, retry_after_s=0.0), ToolStatus.LIMITED),
        (b"bytes", ToolStatus.TOOL_ERROR),
        ("fine", ToolStatus.SUCCESS),
    ],
)
async def test_nothing_else_is_tried_again(harness: Harness, end: object, status: ToolStatus) -> None:
    tool = Script(end)

    result = await harness.call(tool, retry=Retry(5))

    assert (result.status, len(tool.arguments)) == (status, 1)


@pytest.mark.parametrize("anyio_backend", [VIRTUAL], ids=["virtual"])
async def test_a_timeout_is_never_tried_again(harness: Harness) -> None:
    began: list[int] = []

    async def tool(call: object, context: object) -> None:
        began.append(1)
        await asyncio.Event().wait()

    result = await harness.call(tool, retry=Retry(5), timeout_s=10.0)

    assert (result.status, began) == (ToolStatus.TIMEOUT, [1])
    await at_rest(harness)


@pytest.mark.parametrize("anyio_backend", [VIRTUAL], ids=["virtual"])
async def test_the_pause_after_a_crash_doubles_up_to_five_seconds(harness: Harness) -> None:
    began: list[float] = []

    async def tool(call: object, context: object) -> None:
        began.append(asyncio.get_running_loop().time())
        raise ValueError

    await harness.call(tool, retry=Retry(9), timeout_s=100.0)

    pauses = [later - earlier for earlier, later in pairwise(began)]
    expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert len(pauses) == len(expected)
    assert all(low - 1e-9 <= pause <= min(low + 0.05, 5.0) + 1e-9 for pause, low in zip(pauses, expected, strict=True))


async def test_a_pause_that_the_deadline_does_not_leave_is_not_waited_for(harness: Harness) -> None:
    tool = Script(ToolError("busy", retry_after_s=100.0))

    result = await harness.call(tool, retry=Retry(5), timeout_s=10.0)

    assert (result.output, result.retry_after_s, len(tool.arguments)) == ("busy", 100.0, 1)


@pytest.mark.requirement("LAW-3")
async def test_a_source_that_is_closed_meanwhile_is_not_tried_again(harness: Harness) -> None:
    async def tool(call: object, context: object) -> None:
        harness.switch.open = False
        raise SOON

    assert (await harness.call(tool, retry=Retry(5))).output == "busy"


@pytest.mark.requirement("LAW-5")
async def test_a_caller_cancelled_in_the_pause_gives_its_place_back(harness: Harness) -> None:
    permits = ConcurrencyLimit(1, 0, "plays")
    tool = Script(ToolError("busy", retry_after_s=5.0), turn=True)
    running = asyncio.ensure_future(harness.call(tool, retry=Retry(3), limiters=(permits,)))
    await turns(10)
    running.cancel()

    assert await cancelled(running)
    assert await permits.admit(0.0) is None


@pytest.mark.requirement("LAW-5")
async def test_a_call_holds_one_place_for_all_its_attempts(harness: Harness) -> None:
    permits = ConcurrencyLimit(1, 0, "plays")
    tool = Script(SOON, SOON, "third", turn=True)

    assert (await harness.call(tool, retry=Retry(2), limiters=(permits,))).output == "third"
    assert await permits.admit(0.0) is None
    assert await permits.admit(0.0) is not None


async def test_retries_register_no_metric_of_the_process(harness: Harness) -> None:
    await harness.call(Script(SOON), retry=Retry(2))

    assert not [family.name for family in REGISTRY.collect() if "retr" in family.name]


async def naps(call: ToolCall, context: object) -> str:
    """A tool that takes 0.4 s, and never fails."""
    await asyncio.sleep(0.4)
    return "rested"


@pytest.mark.parametrize("anyio_backend", [VIRTUAL], ids=["virtual"])
@pytest.mark.requirement("C-2-limit-breaker")
async def test_what_a_busy_tool_keeps_waiting_is_no_failure_of_it(harness: Harness) -> None:
    permits, breaker = ConcurrencyLimit(1, 100, "plays"), Breaker(3, 30.0, "plays")
    calls = [harness.call(naps, limiters=(breaker, permits), timeout_s=2.0) for _ in range(12)]

    results = await asyncio.gather(*calls)
    await at_rest(harness)

    assert {result.status for result in results} == {ToolStatus.SUCCESS, ToolStatus.TIMEOUT}
    assert not breaker.open
    assert breaker.usage == "0 of 3 failures of plays in a row"
    assert (await harness.call(naps, limiters=(breaker, permits), timeout_s=2.0)).output == "rested"


async def hangs(call: ToolCall, context: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("anyio_backend", [VIRTUAL], ids=["virtual"])
@pytest.mark.requirement("C-2-limit-breaker")
@pytest.mark.parametrize(("waited_s", "failures"), [(0.0, 1), (0.9, 1), (1.1, 0)])
async def test_a_timeout_counts_if_the_tool_had_at_least_half_of_its_time(
    harness: Harness, waited_s: float, failures: int
) -> None:
    permits, breaker = ConcurrencyLimit(1, 1, "plays"), Breaker(3, 30.0, "plays")
    await permits.admit(float("inf"))
    asyncio.get_running_loop().call_later(waited_s, permits.on_end)

    result = await harness.call(hangs, limiters=(breaker, permits), timeout_s=2.0)

    assert result.status is ToolStatus.TIMEOUT
    assert breaker.usage == f"{failures} of 3 failures of plays in a row"
