"""Waiting for a call that is late."""

from __future__ import annotations

import asyncio
import time

import pytest

from toolplug.runtime.running_call import RunningCall

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-relay")]


async def test_a_process_that_stood_still_hears_what_came_meanwhile() -> None:
    running = RunningCall(asyncio.get_running_loop(), None)
    waiting = asyncio.create_task(running.wait_longer(0.1))
    await asyncio.sleep(0)
    time.sleep(0.11)  # the loop stands still
    for _ in range(3):
        await asyncio.sleep(0)
    running.finish("accepted", None)
    assert await waiting


async def test_waiting_longer_ends_and_does_not_ask_the_tool_again() -> None:
    asked: list[str] = []
    running = RunningCall(asyncio.get_running_loop(), lambda: asked.append("to stop"))
    assert not await running.wait(0)
    assert not await running.wait_longer(0.01)
    await asyncio.sleep(0)
    assert asked == ["to stop"]
