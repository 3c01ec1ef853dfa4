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


@pytest.mark.requirement("I36-apart")
async def test_who_awaits_a_call_gets_its_value_or_its_error() -> None:
    loop = asyncio.get_running_loop()
    for value, error in (("tea", None), (None, ValueError("no tea"))):
        for before in (True, False):
            running = RunningCall(loop, None)
            if before:
                running.finish(value, error)
            else:
                loop.call_soon(running.finish, value, error)
            if error is None:
                assert await running == "tea"
            else:
                with pytest.raises(ValueError, match="no tea"):
                    await running


@pytest.mark.requirement("I36-apart")
async def test_who_awaits_a_call_and_is_cancelled_asks_once_and_waits_for_its_end() -> None:
    asked: list[str] = []
    running = RunningCall(asyncio.get_running_loop(), lambda: asked.append("to stop"))

    async def wait() -> object:
        return await running

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (asked, waiting.done()) == (["to stop"], False)
    running.finish("ignored", None)
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.requirement("I36-apart")
async def test_a_second_cancellation_does_not_wait_for_a_tool_that_is_deaf() -> None:
    asked: list[str] = []
    running = RunningCall(asyncio.get_running_loop(), lambda: asked.append("to stop"))

    async def wait() -> object:
        return await running

    waiting = asyncio.create_task(wait())
    for _ in range(2):
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asked == ["to stop"]
