"""The laws of `toolplug.stores.store.Store`, as pytest classes for every store.

A store's own tests subclass `StoreLaws` (or its parts) and give the fixture `open_store`:

    class TestMyStore(StoreLaws):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda **options: MyStore(tmp_path / "state", **options)

Every call of `open_store` returns a store over the same data, not yet open; `clock` and `kept_events` are passed by
name. A store that several processes may open at once also passes `SharedStoreLaws`. The tests run under anyio's pytest
plugin on asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest

from toolplug.errors import StoreConflict, StoreMisused, StoreUnavailable
from toolplug.stores.change import MAX_KEY_BYTES
from toolplug.stores.store import KEPT_EVENTS, Event, Events, Store
from toolplug.testing.manual_clock import ManualClock

KEPT = 4
LONG_S = 30.0


class OpenStore(Protocol):
    """Makes a store, not yet open."""

    def __call__(self, *, clock: Callable[[], float], kept_events: int = KEPT_EVENTS) -> Store: ...


class _Fixtures:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, open_store: OpenStore, clock: ManualClock) -> AsyncIterator[Store]:
        async with open_store(clock=clock, kept_events=KEPT) as store:
            yield store


@pytest.mark.anyio
class RecordLaws(_Fixtures):
    async def test_a_key_without_record_reads_as_none(self, store: Store) -> None:
        assert await store.read("nobody") is None

    @pytest.mark.parametrize("value", [b"", b"\x00", bytes(range(256)), b"x" * 1_048_577])
    async def test_a_value_is_read_back_to_the_byte(self, store: Store, value: bytes) -> None:
        revision = await store.commit("key", value)
        record = await store.read("key")
        assert record is not None
        assert (record.value, record.revision, record.expires_at) == (value, revision, None)

    async def test_keys_differ_by_every_character(self, store: Store) -> None:
        keys = ["a", "A", "a ", "ä", "a\u0308", "%", "_", "*", "?", "'", '"', "\n", "a/b", "\U0001f9a6"]
        for number, key in enumerate(keys):
            await store.commit(key, str(number).encode())
        records = [await store.read(key) for key in keys]
        assert [record.value for record in records if record] == [str(n).encode() for n in range(len(keys))]

    async def test_a_deleted_record_is_gone(self, store: Store) -> None:
        await store.commit("key", b"value")
        await store.commit("other", b"stays")
        await store.commit("key", None)
        assert await store.read("key") is None
        assert await store.keys() == ["other"]

    async def test_deleting_what_is_not_there_changes_nothing(self, store: Store) -> None:
        assert await store.commit("key", None) == 0
        assert await store.commit("key", None, expected=0) == 0

    async def test_the_longest_key_is_taken_and_a_longer_one_is_not(self, store: Store) -> None:
        await store.commit("k" * MAX_KEY_BYTES, b"value")
        assert await store.keys("k") == ["k" * MAX_KEY_BYTES]
        with pytest.raises(StoreMisused, match=str(MAX_KEY_BYTES)):
            await store.commit("k" * (MAX_KEY_BYTES + 1), b"value")

    @pytest.mark.parametrize("key", ["", "nul\x00", "last\U0010ffff", "half\ud800", "é" * (MAX_KEY_BYTES // 2 + 1)])
    async def test_a_text_that_is_no_key_is_refused(self, store: Store, key: str) -> None:
        for use in (store.read(key), store.commit(key, b"value"), store.events(key, 0)):
            with pytest.raises(StoreMisused):
                await use

    @pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan"), float("inf")])
    async def test_a_time_to_live_that_is_none_is_refused(self, store: Store, ttl_s: float) -> None:
        with pytest.raises(StoreMisused, match="time to live"):
            await store.commit("key", b"value", ttl_s=ttl_s)

    async def test_other_arguments_outside_the_limits_are_refused(self, store: Store) -> None:
        for use in (
            store.commit("key", b"value", expected=-1),
            store.commit("key", None, events=[b"last words"]),
            store.keys(limit=0),
            store.events("key", 0, limit=0),
        ):
            with pytest.raises(StoreMisused):
                await use
        assert await store.keys() == []

    async def test_a_store_that_keeps_no_events_is_refused(self, open_store: OpenStore, clock: ManualClock) -> None:
        with pytest.raises(StoreMisused, match="kept_events"):
            open_store(clock=clock, kept_events=0)

    async def test_a_store_that_is_not_open_is_unavailable(self, open_store: OpenStore, clock: ManualClock) -> None:
        store = open_store(clock=clock)
        await store.aclose()
        async with store:
            await store.commit("key", b"value")
        await store.aclose()
        for use in (store.read("key"), store.commit("key", b"2"), store.keys(), store.events("key", 0, wait_s=LONG_S)):
            with pytest.raises(StoreUnavailable, match="not open"):
                await use


@pytest.mark.anyio
class RevisionLaws(_Fixtures):
    async def test_revisions_rise_by_one(self, store: Store) -> None:
        first = await store.commit("key", b"1")
        assert first >= 1
        assert [await store.commit("key", b"1") for _ in range(3)] == [first + 1, first + 2, first + 3]

    async def test_a_commit_that_expects_another_revision_changes_nothing(self, store: Store) -> None:
        revision = await store.commit("key", b"value", events=[b"begun"])
        before = await store.read("key")
        assert before is not None
        for expected in (0, revision - 1, revision + 1):
            for value in (b"other", None):
                with pytest.raises(StoreConflict) as caught:
                    await store.commit("key", value, expected=expected, events=[b"lost"] if value else [])
                assert (caught.value.key, caught.value.expected, caught.value.actual) == ("key", expected, revision)
        assert await store.read("key") == before
        assert await store.events("key", before.position) == Events(known=True)

    async def test_a_commit_that_expects_no_record_creates_only_once(self, store: Store) -> None:
        revision = await store.commit("key", b"mine", expected=0)
        with pytest.raises(StoreConflict):
            await store.commit("key", b"yours", expected=0)
        with pytest.raises(StoreConflict):
            await store.commit("missing", b"value", expected=1)
        record = await store.read("key")
        assert record is not None
        assert (record.value, record.revision) == (b"mine", revision)
        assert await store.keys() == ["key"]

    async def test_of_many_commits_with_one_expectation_exactly_one_wins(self, store: Store) -> None:
        revision = await store.commit("key", b"")
        answers = await asyncio.gather(
            *(store.commit("key", str(n).encode(), expected=revision) for n in range(20)), return_exceptions=True
        )
        assert answers.count(revision + 1) == 1
        assert sum(isinstance(answer, StoreConflict) for answer in answers) == 19
        record = await store.read("key")
        assert record is not None
        assert record.value == str(answers.index(revision + 1)).encode()

    async def test_no_increment_is_lost_among_many(self, store: Store) -> None:
        await store.commit("sum", b"0")

        async def increment() -> None:
            while True:
                record = await store.read("sum")
                assert record is not None
                try:
                    await store.commit("sum", str(int(record.value) + 1).encode(), expected=record.revision)
                except StoreConflict:
                    continue
                return

        await asyncio.gather(*(increment() for _ in range(20)))
        record = await store.read("sum")
        assert record is not None
        assert record.value == b"20"

    async def test_a_conflict_leaves_the_commits_beside_it_alone(self, store: Store) -> None:
        answers = await asyncio.gather(
            store.commit("first", b"1"),
            store.commit("second", b"2", expected=7),
            store.commit("third", b"3"),
            return_exceptions=True,
        )
        assert isinstance(answers[1], StoreConflict)
        assert await store.keys() == ["first", "third"]

    async def test_a_record_begins_again_above_its_old_revisions(self, store: Store, clock: ManualClock) -> None:
        await store.commit("key", b"1")
        updated = await store.commit("key", b"2")
        deleted = await store.commit("key", None, expected=updated)
        again = await store.commit("key", b"3", expected=0, ttl_s=1)
        assert updated < deleted < again
        clock.now += 1
        assert await store.commit("key", b"4", expected=0) > again

    async def test_commits_of_one_key_at_once_follow_one_another(self, store: Store) -> None:
        revisions = await asyncio.gather(
            store.commit("key", b"1", events=[b"first life"]),
            store.commit("key", None),
            store.commit("key", None),
            store.commit("key", b"2", events=[b"second life"]),
            store.commit("gone", b"1", events=[b"only life"]),
            store.commit("gone", None),
        )
        assert revisions[2] == 0
        assert revisions[0] < revisions[1] < revisions[3]
        record = await store.read("key")
        assert record is not None
        assert (record.value, record.revision) == (b"2", revisions[3])
        assert await store.keys() == ["key"]
        assert await store.events("key", record.position - 1) == Events(
            known=True, entries=(Event(record.position, b"second life"),)
        )

    async def test_a_cancelled_commit_is_done_whole_or_not_at_all(self, store: Store) -> None:
        for number in range(40):
            key = f"key{number}"
            committing = asyncio.create_task(store.commit(key, b"value", events=[b"event"]))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            # Whatever was begun is over when a later commit is.
            await store.commit("later", b"")
            record = await store.read(key)
            if record is not None:
                assert await store.events(key, record.position - 1) == Events(
                    known=True, entries=(Event(record.position, b"event"),)
                )


@pytest.mark.anyio
class ExpiryLaws(_Fixtures):
    async def test_a_record_is_gone_after_its_time_to_live(self, store: Store, clock: ManualClock) -> None:
        await store.commit("key", b"value", ttl_s=10, events=[b"event"])
        clock.now += 9.5
        record = await store.read("key")
        assert record is not None
        assert record.expires_at == clock.now + 0.5
        clock.now += 0.5
        assert await store.read("key") is None
        assert await store.keys() == []
        assert await store.events("key", record.position) == Events(known=False)
        assert await store.commit("key", None) == 0

    async def test_every_commit_sets_the_time_to_live_anew(self, store: Store, clock: ManualClock) -> None:
        await store.commit("longer", b"value", ttl_s=10)
        await store.commit("for ever", b"value", ttl_s=10)
        clock.now += 9
        await store.commit("longer", b"value", ttl_s=10)
        await store.commit("for ever", b"value")
        clock.now += 9
        assert await store.keys() == ["for ever", "longer"]
        clock.now += 1e9
        assert await store.keys() == ["for ever"]

    async def test_the_record_after_an_expired_one_has_a_log_of_its_own(self, store: Store, clock: ManualClock) -> None:
        await store.commit("key", b"old", ttl_s=1, events=[b"old"])
        old = await store.read("key")
        clock.now += 2
        await store.commit("key", b"new", expected=0, events=[b"new"])
        new = await store.read("key")
        assert old is not None
        assert new is not None
        assert await store.events("key", old.position) == Events(known=False)
        assert await store.events("key", new.position - 1) == Events(known=True, entries=(Event(new.position, b"new"),))

    async def test_many_expired_records_leave_the_living_alone(self, store: Store, clock: ManualClock) -> None:
        await asyncio.gather(*(store.commit(f"dying {n}", b"", ttl_s=1, events=[b""]) for n in range(200)))
        await asyncio.gather(*(store.commit(f"living {n}", b"", ttl_s=1e6, events=[b""]) for n in range(5)))
        clock.now += 10
        for n in range(5):
            await store.commit(f"living {n}", b"", events=[b"still here"])
            clock.now += 10
        assert await store.keys() == [f"living {n}" for n in range(5)]
        assert await store.read("dying 0") is None


@pytest.mark.anyio
class KeyLaws(_Fixtures):
    async def test_keys_are_listed_by_prefix_in_order(self, store: Store) -> None:
        for key in ("b", "a/2", "a/10", "a", "a/\U0001f9a6", "a/é", "a0", "A/1"):
            await store.commit(key, b"")
        assert await store.keys("a/") == ["a/10", "a/2", "a/é", "a/\U0001f9a6"]
        assert await store.keys() == ["A/1", "a", "a/10", "a/2", "a/é", "a/\U0001f9a6", "a0", "b"]
        assert await store.keys("c") == []
        assert await store.keys("a/", after="a") == ["a/10", "a/2", "a/é", "a/\U0001f9a6"]
        assert await store.keys("a/", after="a/20") == ["a/é", "a/\U0001f9a6"]
        assert await store.keys("a/", after="b") == []

    async def test_a_prefix_is_taken_literally(self, store: Store) -> None:
        for key in ("a%b", "a_b", "a*b", "axb", "a[b"):
            await store.commit(key, b"")
        for prefix in ("a%", "a_", "a*", "a["):
            assert await store.keys(prefix) == [f"{prefix}b"]

    async def test_pages_follow_one_another_without_gap_or_double(self, store: Store) -> None:
        expected = sorted(f"p/{n}" for n in range(25))
        await asyncio.gather(*(store.commit(key, b"") for key in expected))
        await store.commit("q", b"")
        found: list[str] = []
        while page := await store.keys("p/", after=found[-1] if found else "", limit=7):
            assert len(page) <= 7
            found += page
        assert found == expected


@pytest.mark.anyio
class EventLaws(_Fixtures):
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
        start = await _position(store, "key")
        for number in range(KEPT):
            await store.commit("other", b"", events=[b"between"])
            await store.commit("key", b"", events=[str(number).encode()])
        everything = (await store.events("key", start)).entries
        assert [event.data for event in everything] == [b"0", b"1", b"2", b"3"]
        for number, event in enumerate(everything, 1):
            assert await store.events("key", event.id) == Events(known=True, entries=everything[number:])

    async def test_a_log_keeps_its_newest_events(self, store: Store) -> None:
        await store.commit("key", b"")
        start = await _position(store, "key")
        for number in range(KEPT):
            await store.commit("key", b"", events=[str(number).encode()])
        oldest = (await store.events("key", start)).entries[0]
        await store.commit("key", b"", events=[b"one more"])
        assert await store.events("key", start) == Events(known=False)
        assert await store.events("key", oldest.id) == Events(known=False)
        await store.commit("key", b"", events=[str(number).encode() for number in range(3 * KEPT)])
        end = await _position(store, "key")
        kept = (await store.events("key", end - KEPT + 1)).entries
        assert [event.data for event in kept] == [b"9", b"10", b"11"]
        assert await store.events("key", end - KEPT) == Events(known=False)

    @pytest.mark.parametrize("away", [1, 1000, 2**63, 10**40, -(10**40)])
    async def test_a_position_that_the_log_never_had_is_unknown(self, store: Store, away: int) -> None:
        await store.commit("key", b"", events=[b"event"])
        position = await _position(store, "key")
        assert await store.events("key", position + away, wait_s=LONG_S) == Events(known=False)

    async def test_a_position_of_another_log_is_unknown(self, store: Store) -> None:
        await store.commit("mine", b"", events=[b"mine"])
        await store.commit("yours", b"")
        begun = await _position(store, "yours")
        await store.commit("yours", b"", events=[b"yours"])
        await store.commit("mine", b"", events=[b"mine"])
        for position in (begun, await _position(store, "yours")):
            assert await store.events("mine", position, wait_s=LONG_S) == Events(known=False)
        assert await store.events("nobody", begun, wait_s=LONG_S) == Events(known=False)

    async def test_a_new_record_of_a_key_has_a_log_of_its_own(self, store: Store) -> None:
        await store.commit("key", b"")
        begun = await _position(store, "key")
        await store.commit("key", b"", events=[b"old"])
        old = await _position(store, "key")
        await store.commit("key", None)
        assert await store.events("key", old) == Events(known=False)
        await store.commit("key", b"", events=[b"new"])
        assert await store.events("key", begun) == Events(known=False)
        assert await store.events("key", old) == Events(known=False)

    async def test_pages_of_events_follow_one_another(self, store: Store) -> None:
        await store.commit("key", b"")
        at = await _position(store, "key")
        await store.commit("key", b"", events=[b"0", b"1", b"2"])
        found: list[bytes] = []
        for expected in (2, 1, 0):
            page = await store.events("key", at, limit=2)
            assert len(page.entries) == expected
            found += [event.data for event in page.entries]
            at = max(event.id for event in page.entries) if page.entries else at
        assert found == [b"0", b"1", b"2"]


@pytest.mark.anyio
class WaitLaws(_Fixtures):
    async def test_a_commit_ends_the_waits_for_its_log(self, store: Store) -> None:
        await store.commit("key", b"")
        at = await _position(store, "key")
        waits = [await _parked(store, "key", at) for _ in range(3)]
        await store.commit("key", b"")
        await store.commit("other", b"", events=[b"not for you"])
        await store.commit("key", b"", events=[b"news"])
        for events in await asyncio.gather(*waits):
            assert [event.data for event in events.entries] == [b"news"]

    async def test_a_wait_ends_by_itself(self, store: Store) -> None:
        await store.commit("key", b"")
        assert await store.events("key", await _position(store, "key"), wait_s=0.01) == Events(known=True)

    async def test_deleting_a_record_ends_the_waits_for_its_log(self, store: Store) -> None:
        await store.commit("key", b"")
        wait = await _parked(store, "key", await _position(store, "key"))
        await store.commit("key", None)
        assert await wait == Events(known=False)

    async def test_closing_the_store_ends_the_waits(self, open_store: OpenStore, clock: ManualClock) -> None:
        async with open_store(clock=clock) as store:
            await store.commit("key", b"")
            wait = await _parked(store, "key", await _position(store, "key"))
        with pytest.raises(StoreUnavailable):
            await wait

    async def test_a_cancelled_wait_leaves_the_others_waiting(self, store: Store) -> None:
        await store.commit("key", b"")
        at = await _position(store, "key")
        leaving = await _parked(store, "key", at)
        staying = await _parked(store, "key", at)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert leaving.cancelled()
        await store.commit("key", b"", events=[b"news"])
        assert [event.data for event in (await staying).entries] == [b"news"]

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
            reading = asyncio.create_task(read_on(store, await _position(store, "key")))
            for number in range(0, 50, 2):
                await store.commit("key", b"", events=[str(number).encode(), str(number + 1).encode()])
            assert await reading == [str(number).encode() for number in range(50)]


class StoreLaws(RecordLaws, RevisionLaws, ExpiryLaws, KeyLaws, EventLaws, WaitLaws):
    """Every law that holds for every store."""


@pytest.mark.anyio
class SharedStoreLaws(_Fixtures):
    """For a store that outlives its process and that several processes may open at once."""

    @pytest.fixture
    async def other(self, open_store: OpenStore, clock: ManualClock) -> AsyncIterator[Store]:
        async with open_store(clock=clock, kept_events=KEPT) as store:
            yield store

    async def test_everything_is_there_after_reopening(self, open_store: OpenStore, clock: ManualClock) -> None:
        async with open_store(clock=clock) as store:
            await store.commit("begun", b"", events=[b""])
            begun = await _position(store, "begun")
            await store.commit("begun", b"value", ttl_s=60, events=[b"event"])
            gone = await store.commit("gone", b"")
            before = await store.read("begun")
            await store.commit("gone", None)
        async with open_store(clock=clock) as store:
            assert await store.read("begun") == before
            assert [event.data for event in (await store.events("begun", begun)).entries] == [b"event"]
            assert await store.commit("gone", b"", expected=0) > gone
            await store.commit("begun", b"", events=[b"later"])
            assert [event.data for event in (await store.events("begun", begun)).entries] == [b"event", b"later"]

    async def test_two_openers_see_each_others_commits(self, store: Store, other: Store) -> None:
        revision = await store.commit("key", b"mine", expected=0)
        record = await other.read("key")
        assert record is not None
        assert (record.value, record.revision) == (b"mine", revision)
        await other.commit("key", b"yours", expected=revision)
        with pytest.raises(StoreConflict):
            await store.commit("key", b"mine again", expected=revision)

    async def test_no_increment_is_lost_among_two_openers(self, store: Store, other: Store) -> None:
        async def increment(one: Store) -> int:
            while True:
                record = await one.read("sum")
                value, revision = (int(record.value), record.revision) if record else (0, 0)
                try:
                    return await one.commit("sum", str(value + 1).encode(), expected=revision)
                except StoreConflict:
                    continue

        revisions = await asyncio.gather(*(increment(one) for one in (store, other) for _ in range(10)))
        record = await store.read("sum")
        assert record is not None
        assert record.value == b"20"
        assert sorted(revisions) == list(range(record.revision - 19, record.revision + 1))

    async def test_a_commit_elsewhere_ends_a_wait(self, store: Store, other: Store) -> None:
        await store.commit("key", b"")
        at = await _position(store, "key")
        for text in (b"first", b"second"):
            wait = await _parked(store, "key", at)
            await other.commit("key", b"", events=[text])
            events = await wait
            assert [event.data for event in events.entries] == [text]
            at = events.entries[-1].id


async def _position(store: Store, key: str) -> int:
    record = await store.read(key)
    assert record is not None
    return record.position


async def _parked(store: Store, key: str, after: int) -> asyncio.Task[Events]:
    """Begin to wait; the wait has looked once when this returns, as stores read in order."""
    wait = asyncio.create_task(store.events(key, after, wait_s=LONG_S))
    await asyncio.sleep(0)
    await store.read(key)
    await asyncio.sleep(0)
    return wait
