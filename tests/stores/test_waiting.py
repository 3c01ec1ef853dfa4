"""Readers that wait cost nothing while nothing happens, and leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from toolplug.stores.changes import Waiting
from toolplug.stores.store import Event, Events

pytestmark = pytest.mark.anyio
NOTHING = Events(known=True)
NEWS = Events(known=True, entries=(Event(1, b"news"),))


class _Page:
    """Says what `events` is and counts how often it was asked."""

    def __init__(self) -> None:
        self.events = NOTHING
        self.asked = 0

    async def __call__(self) -> Events:
        self.asked += 1
        return self.events


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.requirement("I2-2a-events")
async def test_a_waiting_reader_looks_once_at_first_and_once_each_time_it_is_woken() -> None:
    waiting, page = Waiting(), _Page()
    looking = asyncio.create_task(waiting.look("key", 30.0, page))
    await _turns()
    assert page.asked == 1
    waiting.wake(["key", "other"])
    await _turns()
    assert page.asked == 2
    waiting.wake(["other"])
    await _turns()
    assert page.asked == 2
    page.events = NEWS
    waiting.wake_all()
    assert await looking == NEWS
    assert page.asked == 3


@pytest.mark.requirement("I2-2a-events")
async def test_anyone_tells_whether_a_reader_waits() -> None:
    waiting, page = Waiting(), _Page()
    assert await waiting.look("key", 0.0, page) == NOTHING
    assert not waiting.anyone.is_set()
    looking = [asyncio.create_task(waiting.look(key, 30.0, page)) for key in ("key", "key", "other")]
    await _turns()
    assert waiting.anyone.is_set()
    for task in looking:
        assert waiting.anyone.is_set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not waiting.anyone.is_set()
