"""A source's switch: the wait until its last call has ended."""

from __future__ import annotations

import asyncio

import pytest
from tests.execution.harness import Harness, turns

from toolplug.execution.limiters import SourceSwitch

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("C-3-disable-running")
async def test_running_calls_finish_after_the_switch_is_closed_and_the_drain_waits_for_them(harness: Harness) -> None:
    release = asyncio.Event()

    async def tool(call: object, context: object) -> str:
        await release.wait()
        return "finished"

    running = asyncio.ensure_future(harness.call(tool))
    await turns(3)
    harness.switch.open = False
    draining = asyncio.ensure_future(harness.switch.drain(30.0))
    await turns(3)
    assert not draining.done()
    release.set()

    assert await draining is True
    assert (await running).output == "finished"


@pytest.mark.requirement("C-3-disable-running")
async def test_a_drain_waits_for_the_tool_and_not_for_its_caller(harness: Harness) -> None:
    release = asyncio.Event()

    async def clings(call: object, context: object) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    await harness.call(clings, timeout_s=0.01)
    assert await harness.switch.drain(0.01) is False
    release.set()
    assert await harness.switch.drain(30.0) is True


async def test_a_switch_that_nothing_uses_is_drained_at_once() -> None:
    assert await SourceSwitch().drain(0.0) is True


async def test_several_may_wait_for_the_same_drain() -> None:
    switch = SourceSwitch()
    switch.running = 2
    waiting = [asyncio.ensure_future(switch.drain(30.0)) for _ in range(3)]
    await turns(3)
    switch.leave()
    await turns(3)
    assert not any(wait.done() for wait in waiting)
    switch.leave()
    assert await asyncio.gather(*waiting) == [True] * 3
