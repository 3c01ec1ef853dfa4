"""What a record says, from the first word of a server to the last."""

from __future__ import annotations

import asyncio

import pytest
from tests.discovery.fixtures import CLOCK, Server, names, raw, service, turns
from tests.faulty_store import FaultyStore

from toolplug.parts.mcp.discovery.record import NEVER, DiscoveryRecord, ServerName
from toolplug.parts.mcp.discovery.service import Discovery

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("DISC-undiscovered", "DISC-status")
async def test_a_server_that_nobody_knows_was_never_discovered(discovery: Discovery) -> None:
    assert discovery.record(CLOCK) == NEVER
    assert await discovery.wait_for_listing(CLOCK, None) == NEVER


@pytest.mark.requirement("C-8-add", "DISC-on-add", "DISC-background")
async def test_a_new_server_is_discovering_at_once_and_discovered_in_the_background(discovery: Discovery) -> None:
    server = Server()
    discovery.know(server.known())
    assert discovery.record(CLOCK) == DiscoveryRecord(status="discovering", config_hash="h1")
    assert await discovery.wait_for_listing(CLOCK, 0) is discovery.record(CLOCK)
    await asyncio.sleep(1.1)
    record = discovery.record(CLOCK)
    assert (record.status, names(record), record.stale, record.error) == ("success", ["now"], False, None)
    assert record.last_discovery == "2023-11-14T22:13:21.000Z"
    assert len(server.began) == 1


@pytest.mark.requirement("C-8-wait", "DISC-on-demand")
async def test_whoever_asks_waits_for_the_end_or_as_long_as_he_likes(discovery: Discovery) -> None:
    server = Server(takes_s=5)
    discovery.know(server.known())
    assert (await discovery.wait_for_listing(CLOCK, 2)).status == "discovering"
    assert (await discovery.wait_for_listing(CLOCK, None)).status == "success"
    server.tools = [raw("later")]
    assert names(await discovery.wait_for_listing(CLOCK, 10)) == ["later"]
    assert len(server.began) == 2


@pytest.mark.requirement("C-8-record", "DISC-record", "DISC-no-start")
async def test_a_record_outlives_the_process_and_its_server_is_not_asked_again(store: FaultyStore) -> None:
    icon, meta = {"src": "https://example.com/now.png"}, {"ui": {"resourceUri": "ui://now"}}
    server = Server(CLOCK, {**raw("now", a=1), "title": "Now", "icons": [icon], "_meta": meta}, raw("later"), "no tool")
    async with service(store) as discovery:
        discovery.know(server.known())
        before = await discovery.wait_for_listing(CLOCK, None)
    async with service(store) as discovery:
        discovery.know(server.known())
        record = discovery.record(CLOCK)
        await asyncio.sleep(60)
        assert discovery.record(CLOCK) is record
    assert (record.status, record.last_discovery, record.left_out) == (
        "success",
        before.last_discovery,
        before.left_out,
    )
    assert [tool.definition.signature for tool in record.tools] == [tool.definition.signature for tool in before.tools]
    now, later = (tool.definition for tool in record.tools)
    assert (now.title, now.icons, now.meta) == ("Now", (icon,), meta)
    assert (later.title, later.icons, later.meta) == ("", (), {})
    assert [tool.cut for tool in record.tools] == [("/inputSchema/a: no keyword of JSON Schema",), ()]
    assert len(server.began) == 1


@pytest.mark.requirement("DISC-on-change", "DISC-hash", "DISC-not-stale-silently")
async def test_a_changed_configuration_is_discovered_and_its_old_tools_are_stale_meanwhile(
    discovery: Discovery,
) -> None:
    old, new = Server(CLOCK, raw("old")), Server(CLOCK, raw("new"))
    discovery.know(old.known("h1"))
    await discovery.wait_for_listing(CLOCK, None)
    discovery.know(new.known("h2"))
    record = discovery.record(CLOCK)
    assert (record.status, names(record), record.stale, record.config_hash) == ("discovering", ["old"], True, "h2")
    await asyncio.sleep(2)
    record = discovery.record(CLOCK)
    assert (record.status, names(record), record.stale) == ("success", ["new"], False)


async def test_the_same_configuration_once_more_asks_nobody(discovery: Discovery) -> None:
    server = Server()
    discovery.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    discovery.know(server.known())
    await asyncio.sleep(60)
    assert len(server.began) == 1


@pytest.mark.requirement("C-8-old-hash")
async def test_a_forgotten_server_has_no_record_even_when_its_list_comes_later(
    discovery: Discovery, store: FaultyStore
) -> None:
    server = Server()
    discovery.know(server.known())
    await asyncio.sleep(0.5)
    await discovery.forget(CLOCK)
    assert discovery.record(CLOCK) == NEVER
    await asyncio.sleep(60)
    assert discovery.record(CLOCK) == NEVER
    assert await store.keys("discovery/") == []


@pytest.mark.requirement("C-8-old-hash")
async def test_a_server_that_is_left_keeps_its_record_as_it_was(discovery: Discovery) -> None:
    server = Server()
    discovery.know(server.known())
    before = await discovery.wait_for_listing(CLOCK, None)
    server.tools = [raw("other")]
    await discovery.wait_for_listing(CLOCK, 0)
    await turns()
    await discovery.leave(CLOCK)
    await asyncio.sleep(60)
    assert discovery.record(CLOCK) == before


async def test_watchers_hear_of_each_change_and_one_that_raises_costs_no_other(discovery: Discovery) -> None:
    heard: list[tuple[ServerName, str]] = []

    def raises(name: ServerName, record: DiscoveryRecord) -> None:
        raise ValueError(name)

    discovery.watch(raises)
    unsubscribe = discovery.watch(lambda name, record: heard.append((name, record.status)))
    server = Server()
    discovery.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    assert heard == [(CLOCK, "discovering"), (CLOCK, "success")]
    await discovery.forget(CLOCK)
    assert heard[2:] == [(CLOCK, "never")]
    unsubscribe()
    discovery.know(server.known())
    assert len(heard) == 3


async def test_tenants_have_servers_of_one_id_each_for_itself(discovery: Discovery) -> None:
    mine, yours = Server(ServerName("docs", "t1"), raw("mine")), Server(ServerName("docs", "t2"), raw("yours"))
    for server in (mine, yours):
        discovery.know(server.known())
        await discovery.wait_for_listing(server.name, None)
    assert names(discovery.record(mine.name)) == ["mine"]
    await discovery.forget(mine.name)
    assert discovery.record(mine.name) == NEVER
    assert names(discovery.record(yours.name)) == ["yours"]


@pytest.mark.requirement("DISC-refresh-running")
async def test_what_a_running_server_lists_is_kept_without_a_start(discovery: Discovery) -> None:
    server = Server()
    discovery.know(server.known())
    await discovery.wait_for_listing(CLOCK, None)
    await discovery.keep(CLOCK, "h1", [raw("now"), raw("later")])
    record = discovery.record(CLOCK)
    assert (record.status, names(record), len(server.began)) == ("success", ["now", "later"], 1)
    await discovery.keep(CLOCK, "h0", [raw("old")])
    await discovery.keep(ServerName("other"), "h1", [raw("x")])
    assert discovery.record(CLOCK) is record
