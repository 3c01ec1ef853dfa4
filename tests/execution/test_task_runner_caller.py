"""Whatever happens to the caller happens to the caller alone; its tool is told, and its places come back."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import anyio
import pytest
from tests.execution.harness import LOOPS, Harness, at_rest, called, cancelled, turns, until

from toolplug.catalog.call import CallContext, Principal, ToolStatus, current_tenant
from toolplug.execution.limiters import ConcurrencyLimit
from toolplug.execution.run import MAX_DEPTH, run
from toolplug.execution.task_runner import TaskRunner

pytestmark = pytest.mark.anyio

MARK: ContextVar[str] = ContextVar("caller_mark", default="default")


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


class Told:
    """A tool that hangs and remembers that it was cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ends: list[str] = []

    async def __call__(self, call: object, context: object) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise


@pytest.mark.requirement("LAW-4", "C-3-only-cancellation", "C-3-cancelled-counted")
@pytest.mark.parametrize("turns_before", range(5))
async def test_a_caller_cancelled_at_any_stage_is_cancelled_and_its_tool_ends(
    harness: Harness, turns_before: int
) -> None:
    tool = Told()
    running = asyncio.ensure_future(harness.call(tool))
    await turns(turns_before)
    running.cancel()

    assert await cancelled(running)
    assert running.cancelling() == 1
    await at_rest(harness)
    assert tool.ends == ["cancelled"] * tool.began.is_set()
    assert harness.counted() == {"cancelled": 1} if turns_before else harness.counted() == {}


@pytest.mark.requirement("LAW-5", "C-3-cancelled-counted")
async def test_a_caller_cancelled_in_the_queue_leaves_the_queue(harness: Harness) -> None:
    permits = ConcurrencyLimit(1, 1, "plays")
    tool = Told()
    first = asyncio.ensure_future(harness.call(tool, limiters=(permits,)))
    await tool.began.wait()
    second = asyncio.ensure_future(harness.call(tool, limiters=(permits,)))
    await turns(3)
    second.cancel()
    assert await cancelled(second)
    third = asyncio.ensure_future(harness.call(tool, limiters=(permits,)))
    await turns(3)
    first.cancel()
    assert await cancelled(first)
    await until(lambda: harness.switch.running == 1)
    third.cancel()
    assert await cancelled(third)
    await at_rest(harness)
    assert await permits.admit(0.0) is None


@pytest.mark.requirement("LAW-4")
async def test_a_callers_own_timeout_acts_and_is_not_mistaken_for_the_tools(harness: Harness) -> None:
    caller = asyncio.current_task()
    assert caller is not None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await harness.call(Told())
    with anyio.move_on_after(0.01) as scope:
        await harness.call(Told())
    assert scope.cancelled_caught
    assert caller.cancelling() == 0
    await at_rest(harness)


@pytest.mark.requirement("LAW-4")
async def test_a_deadline_inside_a_callers_scope_is_a_result(harness: Harness) -> None:
    async with asyncio.timeout(30), anyio.create_task_group() as group:
        result = await harness.call(Told(), timeout_s=0.01)
        group.cancel_scope.cancel()
    assert result.status is ToolStatus.TIMEOUT
    await at_rest(harness)


@pytest.mark.requirement("LAW-4", "H-fact-context-variables")
async def test_a_tool_reads_the_callers_context_and_changes_only_its_own(harness: Harness) -> None:
    MARK.set("of the caller")

    async def tool(call: object, context: object) -> list[str]:
        before = MARK.get()
        MARK.set("of the tool")
        await asyncio.sleep(0)
        return [before, MARK.get(), current_tenant()]

    def wrapped(call: object, context: object) -> object:
        MARK.set("of a wrapper")
        return tool(call, context)

    context = CallContext(principal=Principal(tenant="t1"))
    assert (await harness.call(tool, context=context)).structured == ["of the caller", "of the tool", "t1"]
    assert (await harness.call(wrapped, context=context)).structured == ["of a wrapper", "of the tool", "t1"]
    assert (MARK.get(), current_tenant()) == ("of the caller", "default")


@pytest.mark.requirement("LAW-4", "H-fact-context-variables")
async def test_each_of_many_calls_has_its_own_callers_tenant_and_context(harness: Harness) -> None:
    async def tool(call: object, context: object) -> list[str]:
        before = [current_tenant(), MARK.get()]
        MARK.set("of the tool")
        await asyncio.sleep(0)
        return [*before, current_tenant()]

    async def caller(name: str) -> object:
        MARK.set(name)
        result = await harness.call(tool, context=CallContext(principal=Principal(tenant=name)))
        return [result.structured, MARK.get(), current_tenant()]

    names = [f"t{index}" for index in range(10)]
    seen = await asyncio.gather(*(asyncio.ensure_future(caller(name)) for name in names))

    assert seen == [[[name, name, name], name, "default"] for name in names]


@pytest.mark.requirement("H-provider-recursion")
@pytest.mark.parametrize("turn", [False, True], ids=["at once", "after a turn"])
async def test_a_tool_that_calls_itself_without_end_is_stopped_at_the_depth_limit(harness: Harness, turn: bool) -> None:
    depth = 0

    async def tool(call: object, context: object) -> str:
        nonlocal depth
        depth += 1
        if turn:
            await asyncio.sleep(0)
        return (await run(plan, called(), CallContext())).output

    plan = harness.plan(tool)
    result = await run(plan, called(), CallContext())

    assert depth == MAX_DEPTH == 16
    assert result.output == 'tool "tool" is not allowed: depth: tools call one another 16 deep'
    await at_rest(harness)


@pytest.mark.requirement("H-provider-recursion")
async def test_depth_is_counted_through_tasks_and_threads(harness: Harness) -> None:
    loop = asyncio.get_running_loop()
    depth = 0

    def blocking(call: object, context: object) -> str:
        nonlocal depth
        depth += 1
        return asyncio.run_coroutine_threadsafe(run(in_task, called(), CallContext()), loop).result().output

    async def tool(call: object, context: object) -> str:
        nonlocal depth
        depth += 1
        return (await asyncio.create_task(run(in_thread, called(), CallContext()))).output

    in_thread, in_task = harness.plan(blocking, runner=harness.threads), harness.plan(tool)
    result = await run(in_task, called(), CallContext())

    assert depth == MAX_DEPTH
    assert "16 deep" in result.output


async def test_a_nested_call_in_a_first_step_gives_its_caller_the_identity_back(harness: Harness) -> None:
    async def inner(call: object, context: object) -> int:
        return id(asyncio.current_task())

    async def outer(call: object, context: object) -> list[int]:
        before = id(asyncio.current_task())
        nested = int((await harness.call(inner)).output)
        between = id(asyncio.current_task())
        await asyncio.sleep(0)
        return [before, nested, between, id(asyncio.current_task())]

    before, nested, between, after = (await harness.call(outer)).structured  # type: ignore[misc]

    assert before == between == after != nested
    await at_rest(harness)


async def test_closed_lanes_take_no_call_and_leave_none_behind(harness: Harness) -> None:
    runner = TaskRunner()
    await runner.open()
    release = asyncio.Event()

    async def tool(call: object, context: object) -> str:
        await release.wait()
        return "finished"

    running = asyncio.ensure_future(harness.call(tool, runner=runner))
    await turns(3)
    await runner.aclose()

    assert (await harness.call(tool, runner=runner)).status is ToolStatus.PANIC
    release.set()
    assert (await running).output == "finished"


async def test_task_runner_closed_by_a_tool_in_its_first_step_are_closed(harness: Harness) -> None:
    runner = TaskRunner()
    await runner.open()

    async def tool(call: object, context: object) -> str:
        await runner.aclose()
        return "closed"

    assert (await harness.call(tool, runner=runner)).output == "closed"
    await turns()


async def test_a_target_that_raises_stop_iteration_panics(harness: Harness) -> None:
    def tool(call: object, context: object) -> object:
        raise StopIteration("not a result")

    assert (await harness.call(tool)).status is ToolStatus.PANIC
