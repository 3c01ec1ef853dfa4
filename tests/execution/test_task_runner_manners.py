"""Whatever a tool does, its caller is answered, keeps its own cancellation state and context, and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import Any, NoReturn

import anyio
import pytest
from tests.execution.harness import LOOPS, Harness, at_rest, called, turns, workers_alive

from toolplug.catalog.call import CallContext, ToolStatus
from toolplug.catalog.plan import Plan
from toolplug.errors import ToolError
from toolplug.execution.run import run

pytestmark = pytest.mark.anyio

PATIENCE_S = 0.02
MARK: ContextVar[str] = ContextVar("mark", default="untouched")


class OwnEnd(BaseException):
    """An end that only this tool knows."""


class BareYield:
    """Gives the loop one turn without a future."""

    def __init__(self, yielded: object = None) -> None:
        self._yielded = yielded

    def __await__(self) -> Generator[object, None, None]:
        yield self._yielded


class Manner:
    """What a tool does, and the status that its caller gets; only who hangs has a deadline that comes."""

    def __init__(self, act: Callable[[asyncio.Event], Awaitable[object]], status: ToolStatus) -> None:
        self.act = act
        self.status = status
        self.timeout_s = PATIENCE_S if status is ToolStatus.TIMEOUT else 30.0


MANNERS: dict[str, Manner] = {}


def manner(status: ToolStatus) -> Callable[[Callable[..., Awaitable[object]]], Callable[..., Awaitable[object]]]:
    def kept(act: Callable[[asyncio.Event], Awaitable[object]]) -> Callable[[asyncio.Event], Awaitable[object]]:
        MANNERS[act.__name__] = Manner(act, status)
        return act

    return kept


def raising(name: str, error: BaseException, status: ToolStatus) -> None:
    async def act(release: asyncio.Event) -> NoReturn:
        raise type(error)(*error.args)

    MANNERS[name] = Manner(act, status)


raising("raises", ValueError("secret"), ToolStatus.PANIC)
raising("raises_tool_error", ToolError("no"), ToolStatus.TOOL_ERROR)
raising("raises_system_exit", SystemExit(3), ToolStatus.PANIC)
raising("raises_keyboard_interrupt", KeyboardInterrupt(), ToolStatus.PANIC)
raising("raises_generator_exit", GeneratorExit(), ToolStatus.PANIC)
raising("raises_its_own_cancelled_error", asyncio.CancelledError(), ToolStatus.PANIC)
raising("raises_its_own_base_exception", OwnEnd(), ToolStatus.PANIC)
raising("raises_an_exception_group", BaseExceptionGroup("several", [SystemExit(1)]), ToolStatus.PANIC)
raising("raises_timeout_error", TimeoutError(), ToolStatus.PANIC)


@manner(ToolStatus.SUCCESS)
async def returns(release: asyncio.Event) -> str:
    return "done"


@manner(ToolStatus.TIMEOUT)
async def hangs(release: asyncio.Event) -> None:
    await release.wait()


@manner(ToolStatus.TIMEOUT)
async def swallows_cancellation_once(release: asyncio.Event) -> str:
    try:
        await release.wait()
    except asyncio.CancelledError:
        return "late"
    return "early"


@manner(ToolStatus.TIMEOUT)
async def swallows_cancellation_for_ever(release: asyncio.Event) -> None:
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue


@manner(ToolStatus.TIMEOUT)
async def answers_cancellation_with_system_exit(release: asyncio.Event) -> None:
    try:
        await release.wait()
    finally:
        raise SystemExit(1)


@manner(ToolStatus.SUCCESS)
async def catches_its_asyncio_timeout(release: asyncio.Event) -> str:
    try:
        async with asyncio.timeout(0):
            await release.wait()
    except TimeoutError:
        return "caught"
    return "early"


@manner(ToolStatus.PANIC)
async def lets_its_asyncio_timeout_out(release: asyncio.Event) -> None:
    async with asyncio.timeout(0):
        await release.wait()


@manner(ToolStatus.SUCCESS)
async def uses_wait_for(release: asyncio.Event) -> str:
    try:
        await asyncio.wait_for(release.wait(), 0)
    except TimeoutError:
        return "caught"
    return "early"


@manner(ToolStatus.TIMEOUT)
async def shields(release: asyncio.Event) -> None:
    await asyncio.shield(release.wait())


@manner(ToolStatus.SUCCESS)
async def gathers(release: asyncio.Event) -> list[str]:
    return list(await asyncio.gather(returns(release), returns(release)))


@manner(ToolStatus.SUCCESS)
async def uses_a_task_group(release: asyncio.Event) -> str:
    async with asyncio.TaskGroup() as group:
        one = group.create_task(returns(release))
        group.create_task(asyncio.sleep(0))
    return one.result()


@manner(ToolStatus.PANIC)
async def fails_in_a_task_group(release: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(MANNERS["raises"].act(release))  # type: ignore[arg-type]
        await release.wait()


@manner(ToolStatus.TIMEOUT)
async def hangs_in_a_task_group(release: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(hangs(release))


@manner(ToolStatus.SUCCESS)
async def uses_move_on_after(release: asyncio.Event) -> str:
    with anyio.move_on_after(0):
        await release.wait()
    return "moved on"


@manner(ToolStatus.PANIC)
async def uses_fail_after(release: asyncio.Event) -> None:
    with anyio.fail_after(0):
        await release.wait()


@manner(ToolStatus.SUCCESS)
async def uses_an_anyio_task_group(release: asyncio.Event) -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(hangs, release)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    return "grouped"


@manner(ToolStatus.TIMEOUT)
async def hides_in_a_shielded_scope(release: asyncio.Event) -> None:
    with anyio.CancelScope(shield=True):
        await swallows_cancellation_for_ever(release)


@manner(ToolStatus.SUCCESS)
async def leaves_an_asyncio_timeout_open(release: asyncio.Event) -> str:
    await asyncio.timeout(0).__aenter__()
    return "left"


@manner(ToolStatus.SUCCESS)
async def leaves_an_anyio_scope_open(release: asyncio.Event) -> str:
    anyio.move_on_after(0).__enter__()
    return "left"


@manner(ToolStatus.PANIC)
async def cancels_itself_and_waits(release: asyncio.Event) -> None:
    itself = asyncio.current_task()
    assert itself is not None
    itself.cancel()
    await release.wait()


@manner(ToolStatus.SUCCESS)
async def cancels_itself_and_returns(release: asyncio.Event) -> str:
    itself = asyncio.current_task()
    assert itself is not None
    itself.cancel()
    return "returned"


@manner(ToolStatus.SUCCESS)
async def cancels_itself_and_changes_its_mind(release: asyncio.Event) -> str:
    itself = asyncio.current_task()
    assert itself is not None
    itself.cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        itself.uncancel()
    await asyncio.sleep(0)
    return "stayed"


@manner(ToolStatus.SUCCESS)
async def keeps_its_task_and_cancels_it_after_its_end(release: asyncio.Event) -> str:
    itself = asyncio.current_task()
    assert itself is not None
    asyncio.get_running_loop().call_soon(itself.cancel)
    return "ended"


@manner(ToolStatus.SUCCESS)
async def sets_a_context_variable(release: asyncio.Event) -> str:
    MARK.set("by the tool")
    await asyncio.sleep(0)
    return MARK.get()


@manner(ToolStatus.SUCCESS)
async def yields_to_the_loop(release: asyncio.Event) -> str:
    await BareYield()
    await BareYield()
    return "back"


@manner(ToolStatus.PANIC)
async def yields_what_no_loop_takes(release: asyncio.Event) -> None:
    await BareYield(5)


@manner(ToolStatus.PANIC)
async def runs_a_loop_of_its_own(release: asyncio.Event) -> None:
    inner = asyncio.sleep(0)
    try:
        asyncio.run(inner)
    finally:
        inner.close()


@manner(ToolStatus.SUCCESS)
async def blocks_the_loop_briefly(release: asyncio.Event) -> int:
    return sum(range(200_000))


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def target(act: Callable[[asyncio.Event], Awaitable[object]], release: asyncio.Event, *, turn: bool) -> Any:
    async def tool(call: object, context: object) -> object:
        if turn:
            await asyncio.sleep(0)
        return await act(release)

    return tool


async def healthy(call: object, context: object) -> str:
    await asyncio.sleep(0)
    return "healthy"


@pytest.mark.requirement(
    "LAW-4",
    "C-3-only-cancellation",
    "C-3-panic-exit",
    "C-3-panic-own-cancel",
    "H-provider-exits",
    "H-provider-hangs",
    "H-provider-cancels-itself",
    "H-provider-swallows-cancellation",
    "H-provider-next-call",
)
@pytest.mark.parametrize("turn", [False, True], ids=["at once", "after a turn"])
@pytest.mark.parametrize("name", MANNERS)
async def test_the_caller_is_answered_and_left_as_it_was_whatever_the_tool_does(
    harness: Harness, name: str, turn: bool
) -> None:
    manner, release = MANNERS[name], asyncio.Event()
    caller = asyncio.current_task()
    assert caller is not None
    MARK.set("by the caller")

    result = await harness.call(target(manner.act, release, turn=turn), timeout_s=manner.timeout_s)

    assert result.status is manner.status
    assert asyncio.current_task() is caller
    assert caller.cancelling() == 0
    assert MARK.get() == "by the caller"
    for _ in range(3):
        assert (await harness.call(healthy)).output == "healthy"
    release.set()
    await at_rest(harness)
    await turns()
    assert caller.cancelling() == 0
    assert harness.counted() == counted_with_healthy(manner.status, 3)


def counted_with_healthy(status: ToolStatus, healthy_calls: int) -> dict[str, int]:
    counted = {"success": healthy_calls}
    counted[status.value] = counted.get(status.value, 0) + 1
    return counted


@pytest.mark.requirement("LAW-4")
@pytest.mark.parametrize("turn", [False, True], ids=["at once", "after a turn"])
async def test_all_manners_at_once_disturb_neither_one_another_nor_the_lanes(harness: Harness, turn: bool) -> None:
    release = asyncio.Event()
    plans: list[tuple[Plan, ToolStatus]] = []
    for manner in MANNERS.values():
        tool = target(manner.act, release, turn=turn)
        plans.append(
            (
                harness.plan(
                    tool, timeout_s=manner.timeout_s, abandoned=harness.accounting.abandoned_limit("native", "crowd")
                ),
                manner.status,
            )
        )
    harness.accounting.abandoned_limit("native", "crowd").limit = 1000

    results = await asyncio.gather(*(run(plan, called(), CallContext()) for plan, _ in plans * 3))

    assert [result.status for result in results] == [status for _, status in plans * 3]
    release.set()
    await at_rest(harness)
    assert workers_alive() <= 1
