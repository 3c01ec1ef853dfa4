"""The runner of Python 3.11 parks tasks and uses them again; it runs on every version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import anyio
import pytest
from tests.execution.harness import LOOPS, Harness, turns, workers_alive
from tests.execution.test_task_runner_identity import own_task

from toolplug.task_runner_py311 import TaskRunner

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("LAW-4")]


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
async def harness(anyio_backend: object) -> AsyncGenerator[Harness]:
    async with Harness(TaskRunner()) as opened:
        yield opened


async def well_behaved(call: object, context: object) -> int:
    async with asyncio.timeout(30):
        await asyncio.sleep(0)
    with anyio.fail_after(30):
        await anyio.lowlevel.checkpoint()
    return id(own_task())


async def test_tools_that_keep_nothing_share_one_task(harness: Harness) -> None:
    used = {(await harness.call(well_behaved)).output for _ in range(20)}

    assert len(used) == 1
    assert workers_alive() == 1


async def test_a_hundred_calls_at_once_leave_one_parked_task(harness: Harness) -> None:
    most: list[int] = []

    async def tool(call: object, context: object) -> str:
        await asyncio.sleep(0)
        most.append(workers_alive())
        return "whole"

    results = await asyncio.gather(*(harness.call(tool) for _ in range(100)))

    assert {result.output for result in results} == {"whole"}
    assert max(most) <= 101
    await turns()
    assert workers_alive() == 1
