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
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from toolplug.errors import StoreConflict, StoreMisused, StoreUnavailable
from toolplug.stores.store import INLINE_BYTES, Change, Event, Missed, Store
from toolplug.testing.store_event_laws import EventLaws, ExtensionLaws, WaitLaws
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
from toolplug.testing.store_record_laws import ExpiryLaws, KeyLaws, RecordLaws, RevisionLaws


@pytest.mark.anyio
class SharedStoreLaws(StoreFixtures):
    """The laws of a store that outlives its process and that several processes may open at once.

    ```python
    from functools import partial

    import pytest
    from toolplug.sqlite import SqliteStore
    from toolplug.testing import SharedStoreLaws

    class TestSharing(SharedStoreLaws):
        @pytest.fixture
        def open_store(self, tmp_path):
            return partial(SqliteStore, tmp_path / "state.db", shared=True)
    ```
    """

    @pytest.fixture
    async def other(self, open_store: OpenStore, clock: ManualClock) -> AsyncIterator[Store]:
        async with open_store(clock=clock, kept_events=KEPT) as store:
            yield store

    async def test_everything_is_there_after_reopening(self, open_store: OpenStore, clock: ManualClock) -> None:
        async with open_store(clock=clock) as store:
            await store.commit("begun", b"", events=[b""])
            begun = await position_of(store, "begun")
            await store.commit("begun", b"value", ttl_s=60, events=[b"event"])
            await store.extend("begun", ttl_s=90, events=[b"extended"])
            gone = await store.commit("gone", b"")
            before = await store.read("begun")
            await store.commit("gone", None)
        async with open_store(clock=clock) as store:
            assert await store.read("begun") == before
            kept = (await store.events("begun", begun)).entries
            assert data_of(kept) == [b"event", b"extended"]
            assert await store.commit("gone", b"", expected=0) > gone
            await store.extend("begun", events=[b"later"])
            await store.commit("begun", b"", events=[b"last"])
            later = (await store.events("begun", begun)).entries
            assert later[:2] == kept
            assert data_of(later[2:]) == [b"later", b"last"]

    async def test_two_openers_see_each_others_commits(self, store: Store, other: Store) -> None:
        revision = await store.commit("key", b"mine", expected=0)
        record = await record_of(other, "key")
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
        record = await record_of(store, "sum")
        assert record.value == b"20"
        assert sorted(revisions) == list(range(record.revision - 19, record.revision + 1))

    async def test_two_openers_extend_one_log(self, store: Store, other: Store) -> None:
        await store.commit("key", b"value")
        at = await position_of(store, "key")
        answers = await asyncio.gather(
            *(one.extend("key", events=[f"{n}".encode()], ttl_s=10) for n in range(2) for one in (store, other))
        )
        assert answers == [True] * 4
        page = await other.events("key", at)
        assert sorted(data_of(page.entries)) == [b"0", b"0", b"1", b"1"]
        assert await store.events("key", at) == page
        await other.commit("key", None)
        assert await store.extend("key", events=[b"late"]) is False

    async def test_a_change_for_one_store_is_watched_there(self, store: Store, other: Store) -> None:
        assert store.id != other.id
        async with aclosing(other.watch("")) as watch:
            await next_items(watch, 1)
            revision = await store.commit("key", b"value", to=other.id)
            (item,) = await next_items(watch, 1)
            # A store may say only that something has changed: a reader of `Missed` reads the records again.
            assert item in (Missed(), Change("key", revision, b"value", ()))

    async def test_a_change_elsewhere_ends_a_wait(self, store: Store, other: Store) -> None:
        at = await new_log(store)
        for change in (
            lambda: other.commit("key", b"", events=[b"news"]),
            lambda: other.commit("key", b"", events=[b"news"]),
            lambda: other.extend("key", events=[b"news"]),
        ):
            wait = await park_wait(store, "key", at)
            await change()
            (events,) = await wake_all(wait)
            assert data_of(events.entries) == [b"news"]
            at = events.entries[-1].id

    async def test_a_watch_hears_of_a_change_elsewhere(self, store: Store, other: Store) -> None:
        async with aclosing(store.watch("")) as watch:
            assert await next_items(watch, 1) == [Missed()]
            for change in (
                lambda: other.commit("key", b"1"),
                lambda: other.extend("key", events=[b"event"]),
                lambda: other.commit("key", None),
            ):
                await change()
                (heard,) = await next_items(watch, 1)
                assert heard == Missed() or (isinstance(heard, Change) and heard.key == "key")


async def next_items(watch: AsyncIterator[Change | Missed], count: int) -> list[Change | Missed]:
    """Return the next items of a watch. Raises `TimeoutError` if they do not come."""
    async with asyncio.timeout(LONG_S / 3):
        return [await anext(watch) for _ in range(count)]


@pytest.mark.anyio
class WatchLaws(StoreFixtures):
    """A watch yields every change under its prefix."""

    async def test_a_watch_begins_by_having_missed_what_was_before_it(self, store: Store) -> None:
        await store.commit("a/1", b"before")
        async with aclosing(store.watch("a/")) as watch:
            assert await next_items(watch, 1) == [Missed()]
            revision = await store.commit("a/2", b"after")
            assert await next_items(watch, 1) == [Change("a/2", revision, b"after", ())]

    async def test_a_watch_yields_each_change_under_its_prefix(self, store: Store) -> None:
        async with aclosing(store.watch("a/")) as watch:
            await next_items(watch, 1)
            first = await store.commit("a/1", b"1", events=[b"begun"])
            begun = await position_of(store, "a/1")
            for other in ("a", "b/1", "A/1"):
                await store.commit(other, b"not for you", events=[b"not for you"])
            second = await store.commit("a/1", b"2", expected=first)
            await store.extend("a/1", ttl_s=60)
            await store.extend("a/1", events=[b"x", b"y"])
            end = await position_of(store, "a/1")
            await store.commit("a/1", None)
            again = await store.commit("a/1", b"3")
            assert await next_items(watch, 5) == [
                Change("a/1", first, b"1", (Event(begun, b"begun"),)),
                Change("a/1", second, b"2", ()),
                Change("a/1", second, None, (Event(end - 1, b"x"), Event(end, b"y"))),
                Change("a/1", 0, None, ()),
                Change("a/1", again, b"3", ()),
            ]

    async def test_large_values_and_events_are_left_out(self, store: Store) -> None:
        small, large = bytes(INLINE_BYTES), bytes(INLINE_BYTES + 1)
        async with aclosing(store.watch("")) as watch:
            await next_items(watch, 1)
            revisions = [
                await store.commit("key", small, events=[small]),
                await store.commit("key", large, events=[b"event"]),
                await store.commit("key", b"value", events=[small, b"."]),
            ]
            (first, second, third) = [item for item in await next_items(watch, 3) if isinstance(item, Change)]
            end = await position_of(store, "key")
            assert first == Change("key", revisions[0], small, (Event(end - 3, small),))
            assert second == Change("key", revisions[1], None, (Event(end - 2, b"event"),))
            assert third == Change("key", revisions[2], b"value", None)

    async def test_changes_of_one_key_at_once_end_with_the_last(self, store: Store) -> None:
        async with aclosing(store.watch("")) as watch:
            await next_items(watch, 1)
            await asyncio.gather(*(store.commit("key", f"{number}".encode()) for number in range(20)))
            record = await record_of(store, "key")
            last: Change | Missed | None = None
            while not (isinstance(last, Change) and last.revision == record.revision):
                (last,) = await next_items(watch, 1)
            assert last == Change("key", record.revision, record.value, ())

    async def test_a_commit_that_conflicts_is_no_change(self, store: Store) -> None:
        await store.commit("key", b"value")
        async with aclosing(store.watch("")) as watch:
            await next_items(watch, 1)
            await asyncio.gather(store.commit("key", b"lost", expected=0), return_exceptions=True)
            revision = await store.commit("key", b"next")
            assert await next_items(watch, 1) == [Change("key", revision, b"next", ())]

    async def test_each_watch_yields_by_itself(self, store: Store) -> None:
        async with aclosing(store.watch("")) as one, aclosing(store.watch("")) as other:
            await next_items(one, 1)
            await next_items(other, 1)
            first = await store.commit("key", b"1")
            assert await next_items(one, 1) == [Change("key", first, b"1", ())]
            await one.aclose()
            second = await store.commit("key", b"2")
            assert await next_items(other, 2) == [Change("key", first, b"1", ()), Change("key", second, b"2", ())]

    async def test_a_reader_that_falls_far_behind_has_missed_changes(self, store: Store) -> None:
        async with aclosing(store.watch("")) as watch:
            await next_items(watch, 1)
            # One more than may wait for a watch.
            await asyncio.gather(*(store.commit(f"key {number}", b"") for number in range(1001)))
            assert await next_items(watch, 1) == [Missed()]
            revision = await store.commit("key", b"after")
            assert await next_items(watch, 1) == [Change("key", revision, b"after", ())]

    async def test_closing_the_store_ends_a_watch(self, open_store: OpenStore, clock: ManualClock) -> None:
        async with open_store(clock=clock) as store:
            watch = store.watch("")
            await next_items(watch, 1)
            waiting = asyncio.create_task(next_items(watch, 1))
            await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="not open"):
            await waiting
        with pytest.raises(StoreUnavailable, match="not open"):
            await next_items(store.watch(""), 1)

    @pytest.mark.parametrize("prefix", ["nul\x00", "last\U0010ffff", "half\ud800"])
    async def test_a_prefix_that_no_key_has_is_refused(self, store: Store, prefix: str) -> None:
        with pytest.raises(StoreMisused):
            await next_items(store.watch(prefix), 1)


@pytest.mark.anyio
class VolatileLaws(StoreFixtures):
    """A record whose key begins with `~` is like any other, but that it may be lost with the store."""

    async def test_a_volatile_record_is_read_listed_and_removed(self, store: Store) -> None:
        first = await store.commit("~a/1", b"1", expected=0)
        await store.commit("a/1", b"lasting")
        second = await store.commit("~a/1", b"2", expected=first)
        assert (await record_of(store, "~a/1")).value == b"2"
        assert await store.keys() == ["a/1", "~a/1"]
        assert await store.keys("~") == ["~a/1"]
        assert await store.keys(limit=1) == ["a/1"]
        assert await store.revisions(["~a/1", "~a/2"]) == {"~a/1": second, "~a/2": 0}
        with pytest.raises(StoreConflict):
            await store.commit("~a/1", b"3", expected=first)
        await store.commit("~a/1", None, expected=second)
        assert await store.read("~a/1") is None
        assert await store.commit("~a/1", b"4", expected=0) > second

    async def test_a_volatile_record_expires(self, store: Store, clock: ManualClock) -> None:
        await store.commit("~a", b"", ttl_s=60)
        await store.extend("~a", ttl_s=120)
        clock.now += 90
        assert await store.read("~a") is not None
        clock.now += 60
        assert await store.read("~a") is None
        assert await store.keys() == []

    async def test_a_volatile_log_is_read_and_waited_for(self, store: Store) -> None:
        at = await new_log(store, "~a")
        wait = await park_wait(store, "~a", at)
        assert await store.extend("~a", events=[b"news"])
        (page,) = await wake_all(wait)
        assert data_of(page.entries) == [b"news"]
        assert await store.events("~a", at) == page

    async def test_a_watch_of_everything_has_the_volatile_records(self, store: Store) -> None:
        async with aclosing(store.watch("")) as everything, aclosing(store.watch("~a/")) as volatile:
            assert [*await next_items(everything, 1), *await next_items(volatile, 1)] == [Missed(), Missed()]
            lasting = await store.commit("a/1", b"lasting")
            revision = await store.commit("~a/1", b"volatile", to="nobody")
            change = Change("~a/1", revision, b"volatile", ())
            assert await next_items(everything, 2) == [Change("a/1", lasting, b"lasting", ()), change]
            assert await next_items(volatile, 1) == [change]


class StoreLaws(
    RecordLaws, RevisionLaws, ExpiryLaws, KeyLaws, EventLaws, WaitLaws, ExtensionLaws, WatchLaws, VolatileLaws
):
    """The laws of every store.

    ```python
    import pytest
    from toolplug.stores import MemoryStore
    from toolplug.testing import StoreLaws

    class TestMemoryStore(StoreLaws):
        @pytest.fixture
        def open_store(self):
            return MemoryStore
    ```
    """
