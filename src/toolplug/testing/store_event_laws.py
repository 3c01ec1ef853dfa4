"""The laws of logs: events, positions, waiting."""

from __future__ import annotations

import asyncio

import pytest

from toolplug.errors import StoreUnavailable
from toolplug.stores.store import Events, Store
from toolplug.testing.store_fixtures import (
    KEPT,
    LONG_S,
    ManualClock,
    OpenStore,
    StoreFixtures,
    parked,
    position_of,
    woken,
)


@pytest.mark.anyio
class EventLaws(StoreFixtures):
    """Events come with their record, in order, and a position tells what was missed."""

    async def test_a_record_and_its_events_are_committed_together(self, store: Store) -> None:
        await store.commit("key", b"1")
        before = await store.read("key")
        await store.commit("key", b"2", events=[b"a", b"b"])
        after = await store.read("key")
        assert before is not None
        assert after is not None
        events = await store.events("key", before.position)
        assert [event.data for event in events.entries] == [b"a", b"b"]
        assert before.position < events.entries[0].id < events.entries[1].id == after.position
        assert await store.events("key", after.position) == Events(known=True)

    async def test_events_follow_any_position_of_the_log(self, store: Store) -> None:
        await store.commit("key", b"")
        start = await position_of(store, "key")
        for number in range(KEPT):
            await store.commit("other", b"", events=[b"between"])
            await store.commit("key", b"", events=[str(number).encode()])
        everything = (await store.events("key", start)).entries
        assert [event.data for event in everything] == [b"0", b"1", b"2", b"3"]
        for number, event in enumerate(everything, 1):
            assert await store.events("key", event.id) == Events(known=True, entries=everything[number:])

    async def test_a_log_keeps_its_newest_events(self, store: Store) -> None:
        await store.commit("key", b"")
        start = await position_of(store, "key")
        for number in range(KEPT):
            await store.commit("key", b"", events=[str(number).encode()])
        oldest = (await store.events("key", start)).entries[0]
        await store.commit("key", b"", events=[b"one more"])
        assert await store.events("key", start) == Events(known=False)
        assert await store.events("key", oldest.id) == Events(known=False)
        await store.commit("key", b"", events=[str(number).encode() for number in range(3 * KEPT)])
        end = await position_of(store, "key")
        kept = (await store.events("key", end - KEPT + 1)).entries
        assert [event.data for event in kept] == [b"9", b"10", b"11"]
        assert await store.events("key", end - KEPT) == Events(known=False)

    async def test_a_log_can_be_read_from_its_oldest_event_on(self, store: Store) -> None:
        assert await store.events("key", None) == Events(known=False)
        await store.commit("key", b"")
        assert await store.events("key", None) == Events(known=True)
        for number in range(KEPT + 2):
            await store.commit("key", b"", events=[str(number).encode()])
        kept = await store.events("key", None)
        assert kept.known
        assert [event.data for event in kept.entries] == [b"2", b"3", b"4", b"5"]
        assert (await store.events("key", None, limit=2)).entries == kept.entries[:2]

    @pytest.mark.parametrize("away", [1, 1000, 2**63, 10**40, -(10**40)])
    async def test_a_position_that_the_log_never_had_is_unknown(self, store: Store, away: int) -> None:
        await store.commit("key", b"", events=[b"event"])
        position = await position_of(store, "key")
        assert await store.events("key", position + away, wait_s=LONG_S) == Events(known=False)

    async def test_a_position_of_another_log_is_unknown(self, store: Store) -> None:
        await store.commit("mine", b"", events=[b"mine"])
        await store.commit("yours", b"")
        begun = await position_of(store, "yours")
        await store.commit("yours", b"", events=[b"yours"])
        await store.commit("mine", b"", events=[b"mine"])
        for position in (begun, await position_of(store, "yours")):
            assert await store.events("mine", position, wait_s=LONG_S) == Events(known=False)
        assert await store.events("nobody", begun, wait_s=LONG_S) == Events(known=False)

    async def test_a_new_record_of_a_key_has_a_log_of_its_own(self, store: Store) -> None:
        await store.commit("key", b"")
        begun = await position_of(store, "key")
        await store.commit("key", b"", events=[b"old"])
        old = await position_of(store, "key")
        await store.commit("key", None)
        assert await store.events("key", old) == Events(known=False)
        await store.commit("key", b"", events=[b"new"])
        assert await store.events("key", begun) == Events(known=False)
        assert await store.events("key", old) == Events(known=False)

    async def test_pages_of_events_follow_one_another(self, store: Store) -> None:
        await store.commit("key", b"")
        at = await position_of(store, "key")
        await store.commit("key", b"", events=[b"0", b"1", b"2"])
        found: list[bytes] = []
        for expected in (2, 1, 0):
            page = await store.events("key", at, limit=2)
            assert len(page.entries) == expected
            found += [event.data for event in page.entries]
            at = max(event.id for event in page.entries) if page.entries else at
        assert found == [b"0", b"1", b"2"]


@pytest.mark.anyio
class WaitLaws(StoreFixtures):
    """A reader waits until something happens."""

    async def test_a_commit_ends_the_waits_for_its_log(self, store: Store) -> None:
        await store.commit("key", b"")
        at = await position_of(store, "key")
        waits = [await parked(store, "key", at) for _ in range(3)]
        await store.commit("key", b"")
        await store.commit("other", b"", events=[b"not for you"])
        await store.commit("key", b"", events=[b"news"])
        for events in await woken(*waits):
            assert [event.data for event in events.entries] == [b"news"]

    async def test_a_wait_ends_by_itself(self, store: Store) -> None:
        await store.commit("key", b"")
        assert await store.events("key", await position_of(store, "key"), wait_s=0.01) == Events(known=True)

    async def test_deleting_a_record_ends_the_waits_for_its_log(self, store: Store) -> None:
        await store.commit("key", b"")
        wait = await parked(store, "key", await position_of(store, "key"))
        await store.commit("key", None)
        assert await woken(wait) == [Events(known=False)]

    async def test_closing_the_store_ends_the_waits(self, open_store: OpenStore, clock: ManualClock) -> None:
        async with open_store(clock=clock) as store:
            await store.commit("key", b"")
            wait = await parked(store, "key", await position_of(store, "key"))
        with pytest.raises(StoreUnavailable):
            await woken(wait)

    async def test_a_cancelled_wait_leaves_the_others_waiting(self, store: Store) -> None:
        await store.commit("key", b"")
        at = await position_of(store, "key")
        leaving = await parked(store, "key", at)
        staying = await parked(store, "key", at)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert leaving.cancelled()
        await store.commit("key", b"", events=[b"news"])
        (events,) = await woken(staying)
        assert [event.data for event in events.entries] == [b"news"]

    async def test_a_reader_sees_each_event_once_and_in_order(self, open_store: OpenStore, clock: ManualClock) -> None:
        async def read_on(store: Store, at: int) -> list[bytes]:
            seen: list[bytes] = []
            while len(seen) < 50:
                events = await store.events("key", at, wait_s=LONG_S, limit=3)
                assert events.entries
                seen.extend(event.data for event in events.entries)
                at = max(event.id for event in events.entries)
            return seen

        async with open_store(clock=clock) as store:
            await store.commit("key", b"")
            reading = asyncio.create_task(read_on(store, await position_of(store, "key")))
            for number in range(0, 50, 2):
                await store.commit("key", b"", events=[str(number).encode(), str(number + 1).encode()])
            async with asyncio.timeout(LONG_S / 3):
                seen = await reading
            assert seen == [str(number).encode() for number in range(50)]
