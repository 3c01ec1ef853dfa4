"""Many waits share one timer of the loop, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.virtual_time import VIRTUAL, VirtualLoop, pass_time

from toolplug.runtime.timers import Timers

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I36-apart")]


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def running_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


async def test_each_wait_ends_at_its_own_time_whatever_the_order() -> None:
    loop, ended = running_loop(), list[tuple[str, float]]()
    timers = Timers(loop)
    for name, delay_s in (("second", 2.0), ("third", 3.0), ("first", 1.0), ("also", 2.0)):
        timers.call_later(delay_s, lambda name: ended.append((name, loop.time())), name)
    await pass_time(10)
    assert sorted(ended) == [("also", 2.0), ("first", 1.0), ("second", 2.0), ("third", 3.0)]


async def test_a_wait_that_is_over_is_not_called_back_and_its_time_does_not_hold_up_another() -> None:
    loop, ended = running_loop(), list[tuple[str, float]]()
    timers = Timers(loop)
    timers.call_later(1.0, lambda name: ended.append((name, loop.time())), "over").cancel()
    timers.call_later(5.0, lambda name: ended.append((name, loop.time())), "waits")
    await pass_time(10)
    assert ended == [("waits", 5.0)]


async def test_waits_that_are_over_leave_one_timer_of_the_loop() -> None:
    loop = running_loop()
    timers, before = Timers(loop), len(loop.timers())
    for _ in range(100):
        timers.call_later(30.0, lambda _: None, None).cancel()
        await asyncio.sleep(0.1)
    assert len(loop.timers()) == before + 1


async def test_a_callback_may_begin_another_wait() -> None:
    loop, ended = running_loop(), list[float]()
    timers = Timers(loop)
    timers.call_later(1.0, lambda _: timers.call_later(0.5, lambda _: ended.append(loop.time()), None), None)
    timers.call_later(4.0, lambda _: ended.append(loop.time()), None)
    await pass_time(10)
    assert ended == [1.5, 4.0]


async def test_nobody_is_called_back_after_the_end() -> None:
    loop, ended = running_loop(), list[object]()
    timers, before = Timers(loop), len(loop.timers())
    timers.call_later(1.0, ended.append, "never")
    timers.close()
    await pass_time(2)
    assert (ended, len(loop.timers())) == ([], before)
