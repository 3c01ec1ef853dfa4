"""Copies follow what other processes write, and make up for what could not be heard."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import pytest
from tests.faulty_store import FaultyStore

from toolplug.cluster.followed import FollowedRecords
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import INLINE_BYTES, Record

pytestmark = pytest.mark.anyio

ANN, BOB = "people/ann", "people/bob"
LARGE = b"x" * (INLINE_BYTES + 1)


class CountingStore(FaultyStore):
    """Counts its operations."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()

    async def read(self, key: str) -> Record | None:
        self.asked["read"] += 1
        return await super().read(key)

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        self.asked["revisions"] += 1
        return await super().revisions(keys)


class Heard:
    """What was told of changes, and the copies that follow from it."""

    def __init__(self) -> None:
        self.all: list[dict[str, str | None]] = []
        self.copies: dict[str, str | None] = {}
        self._more = asyncio.Event()

    def changed(self, changes: Mapping[str, str | None]) -> None:
        self.all.append(dict(changes))
        self.copies.update(changes)
        self._more.set()

    async def until(self, **wanted: str | None) -> None:
        """Wait until the copies of these people are as wanted."""
        async with asyncio.timeout(10):
            while any(self.copies.get(f"people/{name}") != text for name, text in wanted.items()):
                self._more.clear()
                await self._more.wait()


async def load(value: bytes) -> str:
    return value.decode()


@pytest.fixture
async def inner() -> AsyncIterator[MemoryStore]:
    async with MemoryStore() as store:
        yield store


@pytest.fixture
def store(inner: MemoryStore) -> CountingStore:
    """The store as the process has it that follows; `inner` is what others write to."""
    return CountingStore(inner)


@asynccontextmanager
async def followed(store: FaultyStore) -> AsyncIterator[tuple[FollowedRecords[str], Heard]]:
    heard = Heard()
    writing = asyncio.Lock()
    records = FollowedRecords(store, "people/", load, heard.changed, lambda _: writing, pause_s=0)
    await records.start()
    yield records, heard
    await records.aclose()


async def test_what_is_there_at_the_start_is_told_at_once(inner: MemoryStore, store: CountingStore) -> None:
    for key in (BOB, ANN, "places/here"):
        await inner.commit(key, key.encode())
    async with followed(store) as (records, heard):
        assert heard.all == [{ANN: ANN, BOB: BOB}]
        assert (records.get(ANN), records.get("places/here")) == (ANN, None)
        assert store.asked == {"read": 2}


async def test_copies_follow_what_others_write(inner: MemoryStore, store: CountingStore) -> None:
    async with followed(store) as (records, heard):
        await inner.commit(ANN, b"1")
        await heard.until(ann="1")
        await inner.commit(ANN, b"2")
        await heard.until(ann="2")
        assert store.asked["read"] == 1, "small values of known records come with the change"
        await inner.commit(ANN, LARGE)
        await heard.until(ann=LARGE.decode())
        await inner.commit(ANN, None)
        await heard.until(ann=None)
        assert records.get(ANN) is None
        await inner.commit(ANN, b"again")
        await heard.until(ann="again")


async def test_what_this_process_has_written_is_told_once(inner: MemoryStore, store: CountingStore) -> None:
    async with followed(store) as (records, heard):
        records.put(ANN, await store.commit(ANN, LARGE), LARGE.decode())
        assert records.get(ANN) == LARGE.decode()
        await inner.commit(BOB, b"after")
        await heard.until(bob="after")
        assert heard.all == [{ANN: LARGE.decode()}, {BOB: "after"}]
        assert store.asked["read"] == 1


async def test_an_older_change_that_comes_late_is_not_taken(inner: MemoryStore, store: CountingStore) -> None:
    async with followed(store) as (records, heard):
        store.hold("watch")
        for life in range(2):
            await inner.commit(ANN, b"by another process")
            records.put(ANN, await store.commit(ANN, f"{life}".encode()), f"{life}")
            records.put(ANN, await store.commit(ANN, None), None)
        store.go("watch")
        await inner.commit(BOB, b"last")
        await heard.until(bob="last")
        assert [told.get(ANN) for told in heard.all if ANN in told] == ["0", None, "1", None]
        await inner.commit(ANN, b"new")
        await heard.until(ann="new")


async def test_fresh_copies_are_as_new_as_the_question_which_all_share(
    inner: MemoryStore, store: CountingStore
) -> None:
    await inner.commit(ANN, b"1")
    async with followed(store) as (records, _):
        store.hold("watch")
        store.asked.clear()
        await inner.commit(ANN, b"2")
        await inner.commit(BOB, b"2")
        await asyncio.gather(records.fresh([ANN]), records.fresh([BOB]), *(records.fresh([ANN]) for _ in range(10)))
        assert (records.get(ANN), records.get(BOB)) == ("2", "2")
        assert store.asked == {"revisions": 1, "read": 2}
        await inner.commit(ANN, None)
        await records.fresh([ANN, BOB])
        assert (records.get(ANN), records.get(BOB)) == (None, "2")
        assert store.asked == {"revisions": 2, "read": 3}


async def test_one_that_no_longer_waits_leaves_the_others_waiting(inner: MemoryStore, store: CountingStore) -> None:
    async with followed(store) as (records, _):
        store.hold("watch")
        store.hold("revisions")
        await inner.commit(ANN, b"1")
        leaving, staying = (asyncio.create_task(records.fresh([ANN])) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        store.go("revisions")
        await staying
        assert records.get(ANN) == "1"


@pytest.mark.requirement("I4-saved-failing-store")
async def test_a_store_that_cannot_answer_is_tried_until_it_can(
    inner: MemoryStore, store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    await inner.commit(ANN, b"1")
    async with followed(store) as (_, heard):
        store.down = True
        await inner.commit(ANN, b"2")
        await inner.commit(BOB, b"2")
        while not caplog.records:
            await asyncio.sleep(0)
        await inner.commit(BOB, None)
        store.down = False
        await heard.until(ann="2", bob=None)
        await inner.commit(BOB, b"3")
        await heard.until(bob="3")
    assert len(caplog.records) == 1


async def test_a_record_that_cannot_be_read_is_named_and_left_out(
    inner: MemoryStore, store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    await inner.commit(ANN, b"\xff")
    with caplog.at_level(logging.ERROR):
        async with followed(store) as (records, heard):
            await inner.commit(BOB, b"1")
            await heard.until(bob="1")
            assert records.get(ANN) is None
            await inner.commit(ANN, b"repaired")
            await heard.until(ann="repaired")
    assert [record.message.split(" cannot")[0] for record in caplog.records] == [f"record {ANN}"]


async def test_following_ends_where_it_never_began(store: CountingStore) -> None:
    await FollowedRecords(store, "people/", load, Heard().changed, lambda _: asyncio.Lock()).aclose()
