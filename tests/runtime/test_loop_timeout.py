"""A timeout counts the time in which the loop ran, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.virtual_time import VIRTUAL, VirtualLoop

from toolplug.runtime.timers import MOST_PARTS, LoopTimeout

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("H-time-loop")]


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def block(seconds: float) -> None:
    """Keep the loop from running for so long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.now += seconds


async def test_what_never_answers_is_late_after_the_time() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with LoopTimeout(2.0):
            await asyncio.Event().wait()
    assert loop.time() == 2.0


async def test_what_answers_in_time_costs_no_time() -> None:
    async with LoopTimeout(2.0):
        await asyncio.sleep(1.9)
    await asyncio.sleep(10)


@pytest.mark.parametrize("at_s", [0.1, 0.5, 1.2, 1.6, 1.9])
async def test_an_answer_that_came_while_the_loop_was_busy_is_seen(at_s: float) -> None:
    answered = asyncio.Event()

    async def answer() -> None:
        await asyncio.sleep(at_s)
        block(30.0)
        for _ in range(20):  # a reply takes several turns from the socket to its caller
            await asyncio.sleep(0)
        answered.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(answer())
        async with LoopTimeout(2.0):
            await answered.wait()


async def test_a_loop_that_is_always_late_still_ends_it() -> None:
    loop = asyncio.get_running_loop()

    async def be_busy() -> None:
        while True:
            await asyncio.sleep(0.01)
            block(1.0)

    busy = asyncio.create_task(be_busy())
    with pytest.raises(TimeoutError):
        async with LoopTimeout(2.0):
            await asyncio.Event().wait()
    busy.cancel()
    assert loop.time() >= MOST_PARTS * 0.5


async def test_a_cancellation_and_other_errors_pass_through() -> None:
    with pytest.raises(ValueError, match="own"):
        async with LoopTimeout(2.0):
            raise ValueError("own")
    with pytest.raises(TimeoutError, match="of the answer"):
        async with LoopTimeout(2.0):
            raise TimeoutError("of the answer")
    cancelled = asyncio.create_task(_wait_long())
    await asyncio.sleep(1)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def _wait_long() -> None:
    async with LoopTimeout(2.0):
        await asyncio.Event().wait()
