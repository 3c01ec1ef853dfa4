"""Several processes on one store: one of them lists a server, all of them know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.discovery.fixtures import CLOCK, Server, names, raw, service
from tests.faulty_store import FaultyStore

from toolplug.parts.mcp.discovery.record import NEVER, ServerName
from toolplug.parts.mcp.discovery.record_store import record_key
from toolplug.parts.mcp.discovery.service import Discovery

pytestmark = pytest.mark.anyio


@pytest.fixture
async def other(store: FaultyStore) -> AsyncIterator[Discovery]:
    """Another process on the same store."""
    async with service(store) as other:
        yield other


@pytest.mark.requirement("C-8-bounded")
async def test_a_server_that_all_know_is_listed_by_one(discovery: Discovery, other: Discovery) -> None:
    server = Server(takes_s=5)
    heard: list[str] = []
    other.watch(lambda _, record: heard.append(record.status))
    discovery.know(server.known())
    other.know(server.known())
    records = await asyncio.gather(discovery.wait_for_listing(CLOCK, None), other.wait_for_listing(CLOCK, None))
    assert [names(record) for record in records] == [["now"], ["now"]]
    assert len(server.began) == 1
    assert heard == ["discovering", "success"]


@pytest.mark.requirement("C-8-bounded")
async def test_a_listing_that_takes_long_is_believed_in_while_its_process_lives(
    discovery: Discovery, other: Discovery
) -> None:
    server = Server(takes_s=29)
    discovery.know(server.known())
    other.know(server.known())
    records = await asyncio.gather(discovery.wait_for_listing(CLOCK, None), other.wait_for_listing(CLOCK, None))
    assert [record.status for record in records] == ["success", "success"]
    assert len(server.began) == 1


async def test_what_one_finds_the_others_hear_of(discovery: Discovery, other: Discovery) -> None:
    server = Server()
    discovery.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    await asyncio.sleep(1)
    assert names(other.record(CLOCK)) == ["now"], "whether they know the server or not"
    other.know(server.known())
    before = other.record(CLOCK).tools[0]
    await discovery.keep(CLOCK, "h1", [raw("now"), raw("later")])
    await asyncio.sleep(1)
    assert names(other.record(CLOCK)) == ["now", "later"]
    assert other.record(CLOCK).tools[0] is before, "what did not change is the same object"
    await discovery.forget(CLOCK)
    await other.forget(CLOCK)
    assert other.record(CLOCK) == NEVER


async def test_an_acceptance_holds_everywhere(discovery: Discovery, other: Discovery) -> None:
    server = Server(takes_s=0)
    for each in (discovery, other):
        each.know(server.known(pin=True))
    await discovery.wait_for_listing(CLOCK, None)
    await asyncio.sleep(1)
    server.tools = [raw("now", "Otherwise.")]
    await other.wait_for_listing(CLOCK, None)
    await asyncio.sleep(1)
    assert [tool.quarantined for tool in discovery.record(CLOCK).tools] == [True]
    await discovery.accept(CLOCK, None)
    await asyncio.sleep(1)
    assert [tool.quarantined for tool in other.record(CLOCK).tools] == [False]


@pytest.mark.requirement("C-8-recovered", "I17-2-discovery")
async def test_a_discovery_that_a_dead_process_left_is_taken_up_when_its_time_is_over(
    discovery: Discovery, store: FaultyStore
) -> None:
    dead = FaultyStore(store.inner)
    server = Server(takes_s=5)
    async with service(dead) as dying:
        dying.know(server.known())
        await asyncio.sleep(1)
        discovery.know(server.known())
        dead.down = True  # it dies without a word
    assert discovery.record(CLOCK).status == "discovering"
    await asyncio.sleep(8)
    assert len(server.began) == 1
    await asyncio.sleep(8)
    assert (discovery.record(CLOCK).status, len(server.began)) == ("success", 2)


@pytest.mark.requirement("C-8-recovered")
async def test_a_discovery_that_was_left_long_ago_is_taken_up_at_the_start(store: FaultyStore) -> None:
    dead = FaultyStore(store.inner)
    server = Server(takes_s=5)
    async with service(dead) as dying:
        dying.know(server.known())
        await asyncio.sleep(1)
        dead.down = True
    await asyncio.sleep(3600)
    async with service(store) as discovery:
        assert discovery.record(CLOCK).status == "discovering"
        discovery.know(server.known())
        assert (await discovery.wait_for_listing(CLOCK, 6)).status == "success"


@pytest.mark.requirement("C-8-recovered")
async def test_a_process_that_stops_leaves_no_discovery_behind(store: FaultyStore) -> None:
    server = Server(takes_s=5)
    async with service(store) as discovery:
        discovery.know(server.known())
        good = await discovery.wait_for_listing(CLOCK, None)
        await discovery.wait_for_listing(CLOCK, 1)
    async with service(store) as discovery:
        record = discovery.record(CLOCK)
        assert (record.status, record.stale, record.last_discovery) == ("success", False, good.last_discovery)


@pytest.mark.requirement("C-8-old-hash")
async def test_a_result_for_a_configuration_that_another_process_has_replaced_is_dropped(
    discovery: Discovery, other: Discovery
) -> None:
    old, new = Server(CLOCK, raw("old"), takes_s=5), Server(CLOCK, raw("new"), takes_s=20)
    discovery.know(old.known("h1"))
    await asyncio.sleep(1)
    other.know(new.known("h2"))
    await asyncio.sleep(10)
    record = discovery.record(CLOCK)
    assert (record.status, record.error) == ("failed", "another process has another configuration of this server")
    discovery.know(new.known("h2"))
    await asyncio.sleep(20)
    for each in (discovery, other):
        record = each.record(CLOCK)
        assert (record.status, names(record), record.config_hash) == ("success", ["new"], "h2")
    assert (len(old.began), len(new.began)) == (1, 1)


async def test_processes_that_go_on_with_two_configurations_each_keep_their_own_tools(
    discovery: Discovery, other: Discovery
) -> None:
    one, two = Server(CLOCK, raw("one")), Server(CLOCK, raw("two"))
    discovery.know(one.known("h1"))
    await discovery.wait_for_listing(CLOCK, None)
    other.know(two.known("h2"))
    await other.wait_for_listing(CLOCK, None)
    await asyncio.sleep(60)
    assert [names(each.record(CLOCK)) for each in (discovery, other)] == [["one"], ["two"]]
    assert (len(one.began), len(two.began)) == (1, 1)
    one.fails()
    record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.status, names(record), record.stale) == ("failed", ["one"], True)


@pytest.mark.requirement("C-8-old-hash")
async def test_a_result_for_a_server_that_another_process_has_deleted_is_dropped(
    discovery: Discovery, other: Discovery, store: FaultyStore
) -> None:
    server = Server(takes_s=5)
    discovery.know(server.known())
    await asyncio.sleep(4.5)
    await other.forget(CLOCK)
    await asyncio.sleep(1)
    assert (await store.keys("discovery/"), discovery.record(CLOCK).tools) == ([], ())
    await discovery.forget(CLOCK)
    await asyncio.sleep(60)
    assert len(server.began) == 1


async def test_a_server_that_only_another_process_forgets_is_found_again(
    discovery: Discovery, other: Discovery, store: FaultyStore
) -> None:
    server = Server(takes_s=5)
    discovery.know(server.known())
    await asyncio.sleep(4.5)
    await other.forget(CLOCK)
    await asyncio.sleep(10)
    assert (discovery.record(CLOCK).status, len(server.began)) == ("success", 2)
    assert await store.keys("discovery/") == [record_key(CLOCK)]


async def test_a_record_that_this_toolplug_cannot_read_costs_no_other_server(store: FaultyStore) -> None:
    fine, strange = ServerName("fine"), ServerName("strange")
    async with service(store) as discovery:
        for name in (fine, strange):
            discovery.know(Server(name).known())
            await discovery.wait_for_listing(name, None)
    await store.commit(record_key(strange), b"{}\nnothing")
    server = Server(strange)
    async with service(store) as discovery:
        assert names(discovery.record(fine)) == ["now"]
        assert discovery.record(strange) == NEVER
        discovery.know(server.known())
        assert names(await discovery.wait_for_listing(strange, None)) == ["now"]
    async with service(store) as discovery:
        assert names(discovery.record(strange)) == ["now"]


async def test_a_change_that_is_heard_while_another_process_lists_is_looked_at_afterwards(
    discovery: Discovery, other: Discovery
) -> None:
    server = Server(takes_s=5)
    discovery.know(server.known())
    other.know(server.known())
    await asyncio.sleep(2)
    server.tools = [raw("later")]
    other.due(CLOCK)
    await asyncio.sleep(12)
    assert (names(other.record(CLOCK)), len(server.began)) == (["later"], 2)


@pytest.mark.requirement("I17-2-discovery")
async def test_a_change_that_a_server_announces_to_all_is_listed_by_one(discovery: Discovery, other: Discovery) -> None:
    server = Server(takes_s=5)
    discovery.know(server.known())
    other.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    server.tools = [raw("later")]
    for _ in range(3):
        discovery.due(CLOCK)
        other.due(CLOCK)
        await asyncio.sleep(0.1)
    await asyncio.sleep(30)
    assert [names(each.record(CLOCK)) for each in (discovery, other)] == [["later"], ["later"]]
    assert len(server.began) == 2


@pytest.mark.requirement("I17-2-discovery")
async def test_a_process_that_starts_next_to_one_that_has_just_listed_lists_nothing(
    discovery: Discovery, store: FaultyStore
) -> None:
    server = Server()
    discovery.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    await asyncio.sleep(5)
    async with service(store) as started:
        started.know(server.known())
        started.due(CLOCK, unless_listed_s=10)
        await asyncio.sleep(4)
        assert (names(started.record(CLOCK)), len(server.began)) == (["now"], 1)
        await asyncio.sleep(2)
        started.due(CLOCK, unless_listed_s=10)
        await asyncio.sleep(2)
        assert len(server.began) == 2


@pytest.mark.requirement("I17-2-discovery")
async def test_a_list_that_a_session_found_does_not_replace_one_that_is_due(
    discovery: Discovery, other: Discovery
) -> None:
    server = Server()
    discovery.know(server.known())
    other.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    other.due(CLOCK)
    await asyncio.sleep(0.1)
    await discovery.keep(CLOCK, "h1", [raw("older")])
    await asyncio.sleep(2)
    assert (names(other.record(CLOCK)), len(server.began)) == (["now"], 2)
