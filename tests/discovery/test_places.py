"""A few at once, each in its turn, and nobody waits long for those who hang."""

from __future__ import annotations

import asyncio

import pytest
from tests.discovery.fixtures import turns

from toolplug.parts.mcp.discovery.watched_server import FairSemaphore

pytestmark = pytest.mark.anyio


class Guests:
    """Those who come, and who is inside now."""

    def __init__(self, places: FairSemaphore) -> None:
        self.places = places
        self.inside: set[str] = set()
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        for name in names:
            self.tasks[name] = asyncio.create_task(self._stay(name))
        await turns()

    async def go(self, *names: str) -> None:
        for name in names:
            self.tasks.pop(name).cancel()
        await turns()

    async def _stay(self, name: str) -> None:
        async with self.places.place():
            self.inside.add(name)
            try:
                await asyncio.sleep(1000)
            finally:
                self.inside.discard(name)


async def test_whoever_takes_long_makes_room_as_far_as_there_is_some() -> None:
    guests = Guests(FairSemaphore(at_once=2, slow=1, patience_s=2.0))
    await guests.come("a", "b", "c", "d", "e", "f")
    assert guests.inside == {"a", "b"}
    await guests.go("b")
    assert guests.inside == {"a", "c"}
    await asyncio.sleep(2.1)
    assert guests.inside == {"a", "c", "d"}, "a has gone over; for c there is no room"
    await guests.go("a")
    assert guests.inside == {"c", "d", "e"}, "c has gone over instead"
    await guests.go("c", "d", "e")
    assert guests.inside == {"f"}
    await guests.come("g", "h")
    assert guests.inside == {"f", "g"}
    await guests.go("h", "f", "g")
    assert guests.inside == set()


async def test_places_are_the_same_in_number_after_all_that_may_happen() -> None:
    guests = Guests(FairSemaphore(at_once=2, slow=1, patience_s=1.0))
    for _ in range(5):
        await guests.come("a", "b", "c", "d")
        await asyncio.sleep(1.5)
        await guests.go("d", "b", "a", "c")
    await guests.come("a", "b", "c")
    assert guests.inside == {"a", "b"}
    await guests.go("a", "b", "c")
