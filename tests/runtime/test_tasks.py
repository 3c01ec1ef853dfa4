"""Background tasks are held, waited for and cancelled together."""

from __future__ import annotations

import asyncio

import pytest

from toolplug.runtime.tasks import BackgroundTasks, in_slices

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_waiting_raises_the_error_of_a_task() -> None:
    async def fails() -> None:
        raise LookupError("no such thing")

    tasks = BackgroundTasks()
    tasks.start(fails(), "fails")

    with pytest.raises(LookupError, match="no such thing"):
        await tasks.wait()
    assert len(tasks) == 0


async def test_cancelled_tasks_have_ended_when_the_cancellation_returns() -> None:
    ended: list[str] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    tasks = BackgroundTasks()
    tasks.start(hangs(), "hangs")
    await asyncio.sleep(0)
    await tasks.cancel()

    assert ended == ["cleaned up"]
    await tasks.cancel()


async def test_another_task_has_a_turn_between_slices() -> None:
    turns: list[str] = []

    async def neighbour() -> None:
        turns.append("neighbour")

    running = asyncio.create_task(neighbour())
    async for item in in_slices("ab", slice_s=-1):
        turns.append(item)
    await running

    assert turns == ["a", "neighbour", "b"]
