"""The laws of event logs: order, positions, waits, and `Store.extend`."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolplug.errors import StoreMisused, StoreUnavailable
from toolplug.stores.changes import MAX_EVENT_BYTES
from toolplug.stores.store import Event, Events, Store
from toolplug.testing.store_fixtures import (
    KEPT,
    LONG_S,
    ManualClock,
    OpenStore,
    StoreFixtures,
    data_of,
    new_log,
    park_wait,
    position_of,
    record_of,
    wake_all,
)


@pytest.mark.anyio
class EventLaws(StoreFixtures):
    """Events are committed with their record, in order; after any position the missed ones can be read."""

    async def test_a_record_and_its_events_are_committed_together(self, store: Store) -> None:
        await store.commit("key", b"1")
        before = await record_of(store, "key")
        await store.commit("key", b"2", events=[b"a", b"b"])
        after = await record_of(store, "key")
        events = await store.events("key", before.position)
        assert data_of(events.entries) == [b"a", b"b"]
        assert before.position < events.entries[0].id < events.entries[1].id == after.position
        assert await store.events("key", after.position) == Events(known=True)

    async def test_events_follow_any_position_of_the_log(self, store: Store) -> None:
        start = await new_log(store)
        for number in range(KEPT):
            await store.commit("other", b"", events=[b"between"])
            await store.commit("key", b"", events=[str(number).encode()])
        everything = (await store.events("key", start)).entries
        assert data_of(everything) == [b"0", b"1", b"2", b"3"]
        for number, event in enumerate(everything, 1):
            assert await store.events("key", event.id) == Events(known=True, entries=everything[number:])

    async def test_a_log_keeps_its_newest_events(self, store: Store) -> None:
        start = await new_log(store)
        for number in range(KEPT):
            await store.commit("key", b"", events=[str(number).encode()])
        oldest = (await store.events("key", start)).entries[0]
        await store.commit("key", b"", events=[b"one more"])
        assert await store.events("key", start) == Events(known=False)
        assert await store.events("key", oldest.id) == Events(known=False)
        await store.commit("key", b"", events=[str(number).encode() for number in range(3 * KEPT)])
        end = await position_of(store, "key")
        kept = (await store.events("key", end - KEPT + 1)).entries
        assert data_of(kept) == [b"9", b"10", b"11"]
        assert await store.events("key", end - KEPT) == Events(known=False)

    async def test_a_log_can_be_read_from_its_oldest_event_on(self, store: Store) -> None:
        assert await store.events("key", None) == Events(known=False)
        await store.commit("key", b"")
        assert await store.events("key", None) == Events(known=True)
        for number in range(KEPT + 2):
            await store.commit("key", b"", events=[str(number).encode()])
        kept = await store.events("key", None)
        assert kept.known
        assert data_of(kept.entries) == [b"2", b"3", b"4", b"5"]
        assert (await store.events("key", None, limit=2)).entries == kept.entries[:2]

    @pytest.mark.parametrize("away", [1, 1000, 2**63, 10**40, -(10**40)])
    async def test_a_position_that_the_log_never_had_is_unknown(self, store: Store, away: int) -> None:
        await store.commit("key", b"", events=[b"event"])
        position = await position_of(store, "key")
        assert await store.events("key", position + away, wait_s=LONG_S) == Events(known=False)

    async def test_a_position_of_an_earlier_record_of_the_key_is_unknown(self, store: Store) -> None:
        begun = await new_log(store, "mine")
        await store.commit("mine", b"", events=[b"old"])
        old = (begun, await position_of(store, "mine"))
        await store.commit("mine", None)
        await store.commit("mine", b"", events=[b"new", b"newer"])
        for position in old:
            assert await store.events("mine", position, wait_s=LONG_S) == Events(known=False)
        assert await store.events("no record", begun, wait_s=LONG_S) == Events(known=False)

    async def test_a_new_record_of_a_key_has_a_log_of_its_own(self, store: Store) -> None:
        begun = await new_log(store)
        await store.commit("key", b"", events=[b"old"])
        old = await position_of(store, "key")
        await store.commit("key", None)
        assert await store.events("key", old) == Events(known=False)
        await store.commit("key", b"", events=[b"new"])
        assert await store.events("key", begun) == Events(known=False)
        assert await store.events("key", old) == Events(known=False)

    async def test_pages_of_events_follow_one_another(self, store: Store) -> None:
        at = await new_log(store)
        await store.commit("key", b"", events=[b"0", b"1", b"2"])
        found: list[bytes] = []
        for expected in (2, 1, 0):
            page = await store.events("key", at, limit=2)
            assert len(page.entries) == expected
            found += data_of(page.entries)
            at = max(event.id for event in page.entries) if page.entries else at
        assert found == [b"0", b"1", b"2"]


@pytest.mark.anyio
class WaitLaws(StoreFixtures):
    """A wait for events ends with the next event, a deletion, the close of the store, or its time."""

    async def test_a_commit_ends_the_waits_for_its_log(self, store: Store) -> None:
        at = await new_log(store)
        waits = [await park_wait(store, "key", at) for _ in range(3)]
        await store.commit("key", b"")
        await store.commit("other", b"", events=[b"not for you"])
        await store.commit("key", b"", events=[b"news"])
        for events in await wake_all(*waits):
            assert data_of(events.entries) == [b"news"]

    async def test_a_wait_ends_by_itself(self, store: Store) -> None:
        assert await store.events("key", await new_log(store), wait_s=0.01) == Events(known=True)

    async def test_deleting_a_record_ends_the_waits_for_its_log(self, store: Store) -> None:
        wait = await park_wait(store, "key", await new_log(store))
        await store.commit("key", None)
        assert await wake_all(wait) == [Events(known=False)]

    async def test_closing_the_store_ends_the_waits(self, open_store: OpenStore, clock: ManualClock) -> None:
        async with open_store(clock=clock) as store:
            wait = await park_wait(store, "key", await new_log(store))
        with pytest.raises(StoreUnavailable):
            await wake_all(wait)

    async def test_a_cancelled_wait_leaves_the_others_waiting(self, store: Store) -> None:
        at = await new_log(store)
        leaving = await park_wait(store, "key", at)
        staying = await park_wait(store, "key", at)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert leaving.cancelled()
        await store.commit("key", b"", events=[b"news"])
        (events,) = await wake_all(staying)
        assert data_of(events.entries) == [b"news"]

    async def test_a_reader_sees_each_event_once_and_in_order(self, open_store: OpenStore, clock: ManualClock) -> None:
        async def read_on(store: Store, at: int) -> list[bytes]:
            seen: list[bytes] = []
            while len(seen) < 50:
                events = await store.events("key", at, wait_s=LONG_S, limit=3)
                assert events.entries
                seen.extend(data_of(events.entries))
                at = max(event.id for event in events.entries)
            return seen

        async with open_store(clock=clock) as store:
            reading = asyncio.create_task(read_on(store, await new_log(store)))
            for number in range(0, 50, 2):
                await store.commit("key", b"", events=[str(number).encode(), str(number + 1).encode()])
            async with asyncio.timeout(LONG_S / 3):
                seen = await reading
            assert seen == [str(number).encode() for number in range(50)]


@pytest.mark.anyio
class ExtensionLaws(StoreFixtures):
    """`extend` changes the log and the time to live of a live record, not its value and revision."""

    async def test_an_extension_appends_to_the_log_and_leaves_the_record(self, store: Store) -> None:
        revision = await store.commit("key", b"value", ttl_s=10, events=[b"committed"])
        before = await record_of(store, "key")
        assert await store.extend("key", events=[b"a", b"b"]) is True
        assert await store.extend("key", events=[b"c"]) is True
        after = await store.read("key")
        events = (await store.events("key", before.position)).entries
        assert data_of(events) == [b"a", b"b", b"c"]
        assert before.position < events[0].id < events[1].id < events[2].id
        assert after == replace(before, position=events[2].id)
        assert await store.commit("key", b"next", expected=revision) == revision + 1

    async def test_an_extension_sets_the_time_to_live_only_where_asked(self, store: Store, clock: ManualClock) -> None:
        for key in ("longer", "shorter", "as it was"):
            await store.commit(key, b"value", ttl_s=10)
        await store.commit("no longer for ever", b"value")
        clock.now += 5
        assert await store.extend("longer", ttl_s=10)
        assert await store.extend("shorter", ttl_s=1, events=[b"event"])
        assert await store.extend("as it was", events=[b"event"])
        assert await store.extend("no longer for ever", ttl_s=4)
        records = [await store.read(key) for key in ("longer", "shorter", "as it was", "no longer for ever")]
        assert [record.expires_at for record in records if record] == [clock.now + s for s in (10, 1, 5, 4)]
        clock.now += 4.5
        assert await store.keys() == ["as it was", "longer"]
        clock.now += 5
        assert await store.keys() == ["longer"]

    async def test_a_commit_after_an_extension_sets_the_time_to_live_anew(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.commit("key", b"value", ttl_s=1)
        await store.extend("key", ttl_s=100)
        await store.commit("key", b"value", ttl_s=2)
        clock.now += 2
        assert await store.read("key") is None

    async def test_a_record_that_is_not_there_is_not_extended(self, store: Store, clock: ManualClock) -> None:
        await store.commit("deleted", b"value", events=[b"old"])
        await store.commit("deleted", None)
        await store.commit("expired", b"value", ttl_s=1, events=[b"old"])
        clock.now += 1
        for key in ("nobody", "deleted", "expired"):
            assert await store.extend(key, events=[b"lost"], ttl_s=100) is False
            assert await store.extend(key) is False
            assert await store.read(key) is None
            await store.commit(key, b"new", expected=0, events=[b"new"])
            end = await position_of(store, key)
            assert await store.events(key, end - 1) == Events(known=True, entries=(Event(end, b"new"),))

    async def test_extending_by_nothing_tells_whether_there_is_a_record(self, store: Store) -> None:
        await store.commit("key", b"value", ttl_s=10, events=[b"event"])
        before = await store.read("key")
        assert await store.extend("key") is True
        assert await store.read("key") == before

    async def test_a_log_keeps_its_newest_events_among_extensions(self, store: Store) -> None:
        start = await new_log(store)
        for number in range(KEPT):
            await store.extend("key", events=[str(number).encode()])
        kept = (await store.events("key", start)).entries
        assert data_of(kept) == [b"0", b"1", b"2", b"3"]
        await store.extend("key", events=[b"one more"])
        assert await store.events("key", start) == Events(known=False)
        assert await store.events("key", kept[0].id) == Events(known=False)
        assert data_of((await store.events("key", kept[1].id)).entries) == [b"2", b"3", b"one more"]

    async def test_changes_of_one_key_at_once_follow_one_another(self, store: Store, clock: ManualClock) -> None:
        answers = await asyncio.gather(
            store.extend("key", events=[b"too early"]),
            store.commit("key", b"1", events=[b"first life"]),
            store.extend("key", events=[b"lost with it"]),
            store.commit("key", None),
            store.extend("key", events=[b"between"], ttl_s=1),
            store.commit("key", b"2", events=[b"second life"], ttl_s=5),
            store.extend("key", events=[b"goes on"], ttl_s=7),
            store.extend("key", events=[b"and on"]),
        )
        assert [answers[at] for at in (0, 2, 4, 6, 7)] == [False, True, False, True, True]
        record = await record_of(store, "key")
        assert (record.value, record.revision) == (b"2", answers[5])
        assert record.expires_at == clock.now + 7
        assert await store.events("key", record.position - 2) == Events(
            known=True, entries=(Event(record.position - 1, b"goes on"), Event(record.position, b"and on"))
        )

    async def test_no_event_is_lost_among_many_extensions(self, open_store: OpenStore, clock: ManualClock) -> None:
        async with open_store(clock=clock) as store:
            await asyncio.gather(*(store.commit(key, b"") for key in ("a", "b")))
            begun = {key: await position_of(store, key) for key in ("a", "b")}
            await asyncio.gather(
                *(store.extend(key, events=[f"{key}{n}".encode()]) for n in range(100) for key in ("a", "b"))
            )
            for key, position in begun.items():
                events = (await store.events(key, position)).entries
                assert data_of(events) == [f"{key}{n}".encode() for n in range(100)]

    async def test_an_extension_ends_the_waits_for_its_log(self, store: Store) -> None:
        at = await new_log(store)
        waits = [await park_wait(store, "key", at) for _ in range(3)]
        await store.extend("key", ttl_s=10)
        await store.extend("key", events=[b"news"])
        for events in await wake_all(*waits):
            assert data_of(events.entries) == [b"news"]

    async def test_a_renewal_is_no_event(self, store: Store) -> None:
        at = await new_log(store)
        assert await store.extend("key", ttl_s=10)
        assert await position_of(store, "key") == at
        assert await store.events("key", at) == Events(known=True)

    async def test_a_cancelled_extension_is_done_whole_or_not_at_all(self, store: Store, clock: ManualClock) -> None:
        for number in range(40):
            key = f"key{number}"
            await store.commit(key, b"value")
            before = await record_of(store, key)
            extending = asyncio.create_task(store.extend(key, events=[b"event"], ttl_s=10))
            # Cancelled in another step of its way each time.
            for _ in range(number % 4):
                await asyncio.sleep(0)
            extending.cancel()
            await asyncio.gather(extending, return_exceptions=True)
            # Whatever was begun is over when a later change is.
            await store.commit("later", b"")
            record = await record_of(store, key)
            if record != before:
                assert record.expires_at == clock.now + 10
                assert await store.events(key, before.position) == Events(
                    known=True, entries=(Event(record.position, b"event"),)
                )

    async def test_an_event_of_the_largest_size_is_taken_and_a_larger_one_is_not(self, store: Store) -> None:
        at = await new_log(store)
        largest = bytes(MAX_EVENT_BYTES)
        for use in (store.extend("key", events=[largest + b"."]), store.commit("key", b"", events=[largest + b"."])):
            with pytest.raises(StoreMisused, match=str(MAX_EVENT_BYTES)):
                await use
        assert await store.extend("key", events=[largest])
        (event,) = (await store.events("key", at)).entries
        assert event.data == largest

    @pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan"), float("inf")])
    async def test_an_extension_by_no_time_is_refused(self, store: Store, ttl_s: float) -> None:
        await store.commit("key", b"value", ttl_s=10)
        before = await store.read("key")
        with pytest.raises(StoreMisused, match="time to live"):
            await store.extend("key", ttl_s=ttl_s, events=[b"event"])
        assert await store.read("key") == before

    @pytest.mark.parametrize("key", ["", "nul\x00", "last\U0010ffff", "half\ud800"])
    async def test_an_extension_of_a_text_that_is_no_key_is_refused(self, store: Store, key: str) -> None:
        with pytest.raises(StoreMisused):
            await store.extend(key, events=[b"event"])

    async def test_a_store_that_is_not_open_extends_nothing(self, open_store: OpenStore, clock: ManualClock) -> None:
        store = open_store(clock=clock)
        async with store:
            await store.commit("key", b"value")
        with pytest.raises(StoreUnavailable, match="not open"):
            await store.extend("key", events=[b"event"])
