"""A tool that keeps its task reaches with it only the call that it belonged to."""

from __future__ import annotations

import asyncio
import gc

import anyio
import pytest
from tests.execution.harness import LOOPS, Harness, at_rest, turns, until, workers_alive

from toolplug.catalog.call import ToolStatus

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("LAW-4")]


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def own_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def waits(call: object, context: object) -> str:
    await turns(5)
    return "whole"


async def test_a_first_step_has_the_identity_of_the_task_that_carries_it_on(harness: Harness) -> None:
    seen: list[int] = []

    async def tool(call: object, context: object) -> None:
        seen.append(id(own_task()))
        await asyncio.sleep(0)
        seen.append(id(own_task()))

    await harness.call(tool)

    assert seen[0] == seen[1] != id(own_task())


@pytest.mark.parametrize("turn", [False, True], ids=["at once", "after a turn"])
@pytest.mark.parametrize("crowd", [1, 20])
async def test_a_kept_task_is_not_given_another_call(harness: Harness, crowd: int, turn: bool) -> None:
    kept: list[asyncio.Task[object]] = []

    async def keeps(call: object, context: object) -> None:
        if turn:
            await asyncio.sleep(0)
        kept.append(own_task())

    await asyncio.gather(*(harness.call(keeps) for _ in range(crowd)))
    running = [asyncio.ensure_future(harness.call(waits)) for _ in range(crowd)]
    await asyncio.sleep(0)
    for task in kept:
        task.cancel()

    assert [(await call).output for call in running] == ["whole"] * crowd
    kept.clear()
    await at_rest(harness)


async def test_a_task_cancelled_while_it_is_parked_costs_the_next_call_nothing(harness: Harness) -> None:
    kept: list[asyncio.Task[object]] = []

    async def keeps(call: object, context: object) -> None:
        kept.append(own_task())

    await harness.call(keeps)
    kept[0].cancel()
    at_once = await harness.call(waits)
    await turns()
    later = await harness.call(waits)

    assert (at_once.output, later.output) == ("whole", "whole")


async def test_a_task_cancelled_from_outside_while_its_call_runs_ends_that_call_only(harness: Harness) -> None:
    kept: list[asyncio.Task[object]] = []
    other = asyncio.ensure_future(harness.call(waits))
    await asyncio.sleep(0)

    async def keeps(call: object, context: object) -> None:
        kept.append(own_task())
        await asyncio.Event().wait()

    running = asyncio.ensure_future(harness.call(keeps))
    await until(lambda: bool(kept))
    kept[0].cancel()

    assert (await running).status is ToolStatus.PANIC
    assert (await other).output == "whole"


async def test_a_cancellation_between_the_first_step_and_the_take_over_arrives_in_the_tool(harness: Harness) -> None:
    heard: list[str] = []

    async def tool(call: object, context: object) -> str:
        task = own_task()
        asyncio.get_running_loop().call_soon(task.cancel)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            task.uncancel()
        await asyncio.sleep(0)
        return "went on"

    result = await harness.call(tool)

    assert (result.output, heard) == ("went on", ["cancelled"])


async def test_a_cancellation_before_the_take_over_of_a_bare_yield_arrives_in_the_tool(harness: Harness) -> None:
    async def tool(call: object, context: object) -> str:
        own_task().cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    assert (await harness.call(tool)).output == "cancelled"


@pytest.mark.parametrize("leave", ["asyncio", "anyio"])
async def test_a_timeout_left_open_never_cancels_a_later_call(harness: Harness, leave: str) -> None:
    async def tool(call: object, context: object) -> str:
        if leave == "asyncio":
            await asyncio.timeout(0).__aenter__()
        else:
            anyio.move_on_after(0).__enter__()
        return "left"

    for _ in range(3):
        assert (await harness.call(tool)).output == "left"
        assert (await harness.call(waits)).output == "whole"
        gc.collect()
        assert (await harness.call(waits)).output == "whole"


async def test_calls_that_never_suspend_take_no_further_task(harness: Harness) -> None:
    seen: list[int] = []

    async def tool(call: object, context: object) -> None:
        seen.append(workers_alive())

    await asyncio.gather(*(harness.call(tool) for _ in range(10)))

    assert set(seen) == {1}
