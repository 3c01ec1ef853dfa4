"""Synchronous tools: in daemon threads, with the caller's context, counted until the thread itself has ended."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import NoReturn

import pytest
from tests.execution.harness import LOOPS, Harness, at_rest, cancelled, until

from toolplug.catalog.call import CallContext, Principal, ToolStatus, current_tenant
from toolplug.execution.limiters import ConcurrencyLimit

pytestmark = pytest.mark.anyio

MARK: ContextVar[str] = ContextVar("thread_mark", default="default")


def carriers() -> set[threading.Thread]:
    """The threads of this provider, and none of those that other tests leave to their end."""
    return {thread for thread in threading.enumerate() if thread.name == "toolplug-plays"}


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.mark.requirement("H-fact-context-variables")
async def test_a_synchronous_tool_has_the_callers_context_and_another_thread(harness: Harness) -> None:
    MARK.set("of the caller")

    def tool(call: object, context: object) -> list[object]:
        seen = MARK.get()
        MARK.set("of the tool")
        return [seen, current_tenant(), threading.current_thread() is threading.main_thread()]

    result = await harness.call(tool, runner=harness.threads, context=CallContext(principal=Principal(tenant="t1")))

    assert result.structured == ["of the caller", "t1", False]
    assert MARK.get() == "of the caller"


@pytest.mark.requirement("C-3-panic-exit", "H-provider-exits")
@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration]
)
async def test_whatever_a_synchronous_tool_raises_is_a_result(harness: Harness, error: type[BaseException]) -> None:
    def tool(call: object, context: object) -> NoReturn:
        raise error

    assert (await harness.call(tool, runner=harness.threads)).status is ToolStatus.PANIC
    assert (await harness.call(lambda call, context: "next", runner=harness.threads)).output == "next"


@pytest.mark.slow
@pytest.mark.requirement("LAW-4", "LAW-5", "C-3-timeout-abandons")
async def test_a_blocking_tool_is_answered_for_and_keeps_its_place_until_its_thread_ends(harness: Harness) -> None:
    release = threading.Event()
    permits = ConcurrencyLimit(1, 0, "plays")

    def tool(call: object, context: object) -> str:
        release.wait()
        return "late"

    rules = {"runner": harness.threads, "limiters": (permits,)}
    first = await harness.call(tool, timeout_s=0.5, **rules)
    second = await harness.call(tool, **rules)
    assert (first.status, second.status) == (ToolStatus.TIMEOUT, ToolStatus.LIMITED)
    assert harness.idle() == (1, 1, 1)
    release.set()
    await at_rest(harness)
    assert (await harness.call(tool, **rules)).output == "late"


async def test_a_cancelled_caller_leaves_the_thread_to_its_end(harness: Harness) -> None:
    release = threading.Event()
    running = asyncio.ensure_future(harness.call(lambda call, context: release.wait(), runner=harness.threads))
    await until(lambda: harness.switch.running == 1)
    running.cancel()

    assert await cancelled(running)
    assert harness.idle() == (1, 1, 1)
    release.set()
    await at_rest(harness)


async def test_threads_are_used_again_and_grow_only_with_work(harness: Harness) -> None:
    async def one() -> str:
        return (
            await harness.call(lambda call, context: threading.current_thread().name, runner=harness.threads)
        ).output

    before = set(threading.enumerate())
    for _ in range(20):
        assert await one() == "toolplug-plays"
    assert len(carriers() - before) == 1
    await asyncio.gather(*(one() for _ in range(16)))
    assert len(carriers() - before) <= 16


async def test_closed_threads_end_and_take_no_more_work(harness: Harness) -> None:
    before = set(threading.enumerate())
    await asyncio.gather(*(harness.call(lambda call, context: "done", runner=harness.threads) for _ in range(4)))
    assert carriers() - before
    harness.threads.close()

    assert (await harness.call(lambda call, context: "done", runner=harness.threads)).status is ToolStatus.PANIC
    await until(lambda: not carriers() - before)
