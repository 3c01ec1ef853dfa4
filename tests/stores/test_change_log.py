"""Changes of other processes are heard, and made up for where they could not be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from toolplug.errors import StoreUnavailable
from toolplug.stores.change_log import ChangeLog, Following
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import KEPT_EVENTS, Events

pytestmark = pytest.mark.anyio

ANN, BOB = b"ann", b"bob"
KEY = "changes"


class Flaky(MemoryStore):
    """Cannot be followed while it is told so."""

    broken = False

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        if self.broken:
            raise StoreUnavailable("on purpose")
        return await super().events(key, after, wait_s=wait_s, limit=limit)


class Heard:
    """What a follower was told to look at: what was named, or None for everything."""

    def __init__(self) -> None:
        self.all: list[bytes | None] = []
        self._more = asyncio.Event()

    async def one(self, change: bytes) -> None:
        self.all.append(change)
        self._more.set()

    async def everything(self) -> None:
        self.all.append(None)
        self._more.set()

    async def until(self, count: int) -> list[bytes | None]:
        async with asyncio.timeout(10):
            while len(self.all) < count:
                self._more.clear()
                await self._more.wait()
        return self.all


@asynccontextmanager
async def followed(store: Flaky) -> AsyncIterator[Heard]:
    heard = Heard()
    following = Following(ChangeLog(store, KEY), heard.one, heard.everything, pause_s=0)
    await following.start()
    yield heard
    await following.aclose()


async def test_every_announcement_is_heard_once_in_order() -> None:
    async with Flaky() as store, followed(store) as heard:
        log = ChangeLog(store, KEY)
        for change in (ANN, BOB, ANN):
            await log.announce(change)
        assert await heard.until(4) == [None, ANN, BOB, ANN]


async def test_what_a_cut_log_has_lost_is_made_up_for_by_looking_at_everything() -> None:
    async with Flaky() as store, followed(store) as heard:
        log = ChangeLog(store, KEY)
        await store.extend(KEY, events=[b"never read"] * (KEPT_EVENTS + 1))
        assert await heard.until(2) == [None, None]
        await log.announce(BOB)
        assert await heard.until(3) == [None, None, BOB]


@pytest.mark.requirement("I4-saved-failing-store")
async def test_a_store_that_cannot_answer_is_tried_until_it_can_and_then_everything_is_looked_at() -> None:
    async with Flaky() as store:
        log = ChangeLog(store, KEY)
        async with followed(store) as heard:
            store.broken = True
            await log.announce(ANN)
            await heard.until(2)
            for _ in range(10):
                await asyncio.sleep(0)
            store.broken = False
            told = len(heard.all)
            await heard.until(told + 1)
            assert heard.all[-1] is None
            await log.announce(BOB)
            await heard.until(len(heard.all) + 1)
            assert heard.all[-1] == BOB


async def test_following_ends_where_it_never_began() -> None:
    async with Flaky() as store:
        await Following(ChangeLog(store, KEY), Heard().one, Heard().everything).aclose()
