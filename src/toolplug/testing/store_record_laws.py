"""The laws of records: values, revisions, times to live, keys."""

from __future__ import annotations

import asyncio

import pytest

from toolplug.errors import StoreConflict, StoreMisused, StoreUnavailable
from toolplug.stores.changes import MAX_KEY_BYTES
from toolplug.stores.store import Event, Events, Store
from toolplug.testing.store_fixtures import LONG_S, ManualClock, OpenStore, StoreFixtures, record_of


@pytest.mark.anyio
class RecordLaws(StoreFixtures):
    """Committed values are read back; invalid keys, times to live and limits raise `StoreMisused`."""

    async def test_a_key_without_record_reads_as_none(self, store: Store) -> None:
        assert await store.read("nobody") is None

    @pytest.mark.parametrize("value", [b"", b"\x00", bytes(range(256)), b"x" * 1_048_577])
    async def test_a_value_is_read_back_to_the_byte(self, store: Store, value: bytes) -> None:
        revision = await store.commit("key", value)
        record = await record_of(store, "key")
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
class RevisionLaws(StoreFixtures):
    """Revisions rise by one and are never reused; a commit can expect one."""

    async def test_revisions_rise_by_one(self, store: Store) -> None:
        first = await store.commit("key", b"1")
        assert first >= 1
        assert [await store.commit("key", b"1") for _ in range(3)] == [first + 1, first + 2, first + 3]

    async def test_a_commit_that_expects_another_revision_changes_nothing(self, store: Store) -> None:
        revision = await store.commit("key", b"value", events=[b"begun"])
        before = await record_of(store, "key")
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
        record = await record_of(store, "key")
        assert (record.value, record.revision) == (b"mine", revision)
        assert await store.keys() == ["key"]

    async def test_of_many_commits_with_one_expectation_exactly_one_wins(self, store: Store) -> None:
        revision = await store.commit("key", b"")
        answers = await asyncio.gather(
            *(store.commit("key", str(n).encode(), expected=revision) for n in range(20)), return_exceptions=True
        )
        assert answers.count(revision + 1) == 1
        assert sum(isinstance(answer, StoreConflict) for answer in answers) == 19
        record = await record_of(store, "key")
        assert record.value == str(answers.index(revision + 1)).encode()

    async def test_no_increment_is_lost_among_many(self, store: Store) -> None:
        await store.commit("sum", b"0")

        async def increment() -> None:
            while True:
                record = await record_of(store, "sum")
                try:
                    await store.commit("sum", str(int(record.value) + 1).encode(), expected=record.revision)
                except StoreConflict:
                    continue
                return

        await asyncio.gather(*(increment() for _ in range(20)))
        record = await record_of(store, "sum")
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
        record = await record_of(store, "key")
        assert (record.value, record.revision) == (b"2", revisions[3])
        assert await store.keys() == ["key"]
        assert await store.events("key", record.position - 1) == Events(
            known=True, entries=(Event(record.position, b"second life"),)
        )

    async def test_a_cancelled_commit_is_done_whole_or_not_at_all(self, store: Store) -> None:
        for number in range(40):
            key = f"key{number}"
            committing = asyncio.create_task(store.commit(key, b"value", events=[b"event"]))
            # Cancelled in another step of its way each time.
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

    async def test_the_revisions_of_many_records_are_those_of_each(self, store: Store, clock: ManualClock) -> None:
        await store.commit("a", b"", ttl_s=10)
        await store.commit("a", b"")
        await store.commit("b", b"")
        await store.commit("dying", b"", ttl_s=10)
        deleted = await store.commit("deleted", b"")
        revisions = {key: (await record_of(store, key)).revision for key in ("a", "b", "dying")}
        assert await store.revisions([*revisions]) == revisions
        await store.commit("deleted", None, expected=deleted)
        clock.now += 10
        gone = {"dying": 0, "deleted": 0, "never written": 0}
        assert await store.revisions(["never written", "a", *gone]) == {"a": revisions["a"], **gone}
        assert await store.revisions([]) == {}

    async def test_the_revisions_of_thousands_of_records_are_one_question(self, store: Store) -> None:
        await store.commit("key 7", b"")
        # More than a statement of SQLite has variables (32,766).
        found = await store.revisions([f"key {number}" for number in range(40_000)])
        assert (len(found), [key for key, revision in found.items() if revision]) == (40_000, ["key 7"])

    async def test_the_revision_of_a_text_that_is_no_key_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreMisused):
            await store.revisions(["key", ""])


@pytest.mark.anyio
class ExpiryLaws(StoreFixtures):
    """Records expire by the clock of the store."""

    async def test_a_record_is_gone_after_its_time_to_live(self, store: Store, clock: ManualClock) -> None:
        await store.commit("key", b"value", ttl_s=10, events=[b"event"])
        clock.now += 9.5
        record = await record_of(store, "key")
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
        old = await record_of(store, "key")
        clock.now += 2
        await store.commit("key", b"new", expected=0, events=[b"new"])
        new = await record_of(store, "key")
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
class KeyLaws(StoreFixtures):
    """Keys are listed by prefix, in code point order, in pages."""

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
