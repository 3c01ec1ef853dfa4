"""A store that cannot answer: readers and servers notice nothing, and what was found meanwhile is saved later."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.discovery.fixtures import CLOCK, Server, names, raw, service, turns
from tests.faulty_store import FaultyStore
from tests.virtual_time import EPOCH

from toolplug.errors import StoreUnavailable
from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

NOT_SAVED = "discovery results are not saved"


@pytest.mark.requirement("DISC-failure-graceful")
async def test_a_server_is_discovered_while_the_store_is_down_and_saved_when_it_is_back(
    discovery: Discovery, store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.down = True
    server = Server()
    with caplog.at_level(logging.WARNING, "toolplug.discovery"):
        discovery.know(server.known())
        record = await discovery.wait_for_listing(CLOCK, None)
        await discovery.keep(CLOCK, "h1", [raw("now"), raw("later")])
    assert (record.status, names(discovery.record(CLOCK))) == ("success", ["now", "later"])
    assert [entry.message for entry in caplog.records] == [f"{NOT_SAVED}: no commit now"]
    store.down = False
    await asyncio.sleep(2)
    async with service(store) as next_one:
        assert names(next_one.record(CLOCK)) == ["now", "later"]
    assert names(discovery.record(CLOCK)) == ["now", "later"]


async def test_a_refresh_that_cannot_be_saved_holds_here(discovery: Discovery, store: FaultyStore) -> None:
    server = Server()
    discovery.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    store.fails = lambda operation: operation == "commit"
    server.tools = [raw("later")]
    assert names(await discovery.wait_for_listing(CLOCK, None)) == ["later"]
    server.fails()
    record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.status, names(record), record.stale) == ("failed", ["later"], True)
    store.fails = lambda _: False
    server.works()
    assert (await discovery.wait_for_listing(CLOCK, None)).status == "success"
    async with service(store) as next_one:
        assert names(next_one.record(CLOCK)) == ["later"]


async def test_what_was_found_while_the_store_was_down_is_not_lost_to_an_older_record(
    discovery: Discovery, store: FaultyStore
) -> None:
    """Another process, which reaches the store, has written meanwhile that a listing failed."""
    theirs = FaultyStore(store.inner)
    server, broken = Server(takes_s=0), Server(takes_s=0)
    broken.fails()
    async with service(theirs) as other:
        other.know(broken.known())
        await other.wait_for_listing(CLOCK, None)
    store.down = True
    await asyncio.sleep(5)
    discovery.know(server.known())
    assert names(await discovery.wait_for_listing(CLOCK, None)) == ["now"]
    store.down = False
    await asyncio.sleep(2)
    async with service(store) as next_one:
        assert (next_one.record(CLOCK).status, names(next_one.record(CLOCK))) == ("success", ["now"])


@pytest.mark.requirement("C-8-old-hash")
async def test_what_could_not_be_saved_gives_way_when_the_server_is_configured_anew(
    discovery: Discovery, store: FaultyStore
) -> None:
    """Saved later, it would stand over what another process has found with the new configuration."""
    theirs = FaultyStore(store.inner)
    old, new = Server(CLOCK, raw("old")), Server(CLOCK, raw("new"))
    async with service(theirs) as other:
        store.fails = lambda operation: operation == "commit"
        discovery.know(old.known("h1"))
        await discovery.wait_for_listing(CLOCK, None)
        other.know(new.known("h2"))
        await other.wait_for_listing(CLOCK, None)
        await discovery.wait_for_listing(CLOCK, None)
        seen: list[tuple[str, tuple[str, ...], bool]] = []
        other.watch(lambda _, record: seen.append((record.config_hash, (*names(record),), record.stale)))
        discovery.know(new.known("h2"))
        store.fails = lambda _: False
        await asyncio.sleep(60)
        assert set(seen) <= {("h2", ("new",), False)}
        assert [names(each.record(CLOCK)) for each in (discovery, other)] == [["new"], ["new"]]


async def test_what_other_processes_could_not_hear_of_they_read_later(discovery: Discovery, store: FaultyStore) -> None:
    theirs = FaultyStore(store.inner)
    async with service(theirs) as other:
        theirs.fails = lambda operation: operation == "watch"
        discovery.know(Server(takes_s=0).known())
        await discovery.wait_for_listing(CLOCK, None)
        await asyncio.sleep(5)
        assert other.record(CLOCK).status == "never"
        theirs.fails = lambda _: False
        await asyncio.sleep(2)
        assert names(other.record(CLOCK)) == ["now"]


async def test_whoever_forgets_is_told_that_the_store_has_not(discovery: Discovery, store: FaultyStore) -> None:
    discovery.know(Server(takes_s=0).known())
    await discovery.wait_for_listing(CLOCK, None)
    store.down = True
    with pytest.raises(StoreUnavailable):
        await discovery.forget(CLOCK)
    store.down = False
    await discovery.forget(CLOCK)
    assert await store.keys("discovery/") == []


async def test_a_store_that_is_down_at_the_start_is_told_of_at_once(store: FaultyStore) -> None:
    store.down = True
    with pytest.raises(StoreUnavailable):
        async with service(store):
            pass


async def test_a_slow_store_changes_nothing(discovery: Discovery, store: FaultyStore) -> None:
    store.pace = dict.fromkeys(("commit", "read"), (5, 5))
    server = Server(takes_s=0)
    discovery.know(server.known())
    await turns(7)
    server.tools = [raw("later")]
    discovery.know(server.known("h2"))
    await turns(3)
    await discovery.keep(CLOCK, "h1", [raw("old")])
    await turns(100)
    record = discovery.record(CLOCK)
    assert (record.status, names(record), record.config_hash) == ("success", ["later"], "h2")


async def test_a_clock_that_is_put_back_neither_stops_discovery_nor_makes_it_spin() -> None:
    loop = asyncio.get_running_loop()
    back_s = 0.0
    server = Server(takes_s=0)
    async with MemoryStore(clock=lambda: EPOCH + loop.time() - back_s) as store, service(store) as discovery:
        discovery.know(server.known())
        await discovery.wait_for_listing(CLOCK, None)
        back_s = 3600.0
        server.tools = [raw("later")]
        assert names(await discovery.wait_for_listing(CLOCK, None)) == ["later"]
        server.fails()
        await discovery.wait_for_listing(CLOCK, None)
        back_s = 7200.0
        server.works()
        await asyncio.sleep(60)
        assert (discovery.record(CLOCK).status, discovery.record(CLOCK).stale) == ("success", False)
