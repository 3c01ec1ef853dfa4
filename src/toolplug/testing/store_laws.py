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

from toolplug.errors import StoreConflict
from toolplug.stores.store import Change, Missed, Store
from toolplug.testing.store_event_laws import EventLaws, ExtensionLaws, WaitLaws
from toolplug.testing.store_fixtures import (
    KEPT,
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
from toolplug.testing.store_watch_laws import VolatileLaws, WatchLaws, next_items


class StoreLaws(
    RecordLaws, RevisionLaws, ExpiryLaws, KeyLaws, EventLaws, WaitLaws, ExtensionLaws, WatchLaws, VolatileLaws
):
    """The laws of every store."""


@pytest.mark.anyio
class SharedStoreLaws(StoreFixtures):
    """The laws of a store that outlives its process and that several processes may open at once."""

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
