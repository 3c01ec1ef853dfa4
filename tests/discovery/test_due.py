"""When a list may have changed: soon, not too often, and never twice at once."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.discovery.fixtures import CLOCK, Server, names, raw, service, turns
from tests.faulty_store import FaultyStore

from toolplug.parts.mcp.discovery.record import ServerName
from toolplug.parts.mcp.discovery.service import Discovery

pytestmark = pytest.mark.anyio


async def listed(discovery: Discovery, server: Server) -> float:
    """Let it be known and listed; the time after it."""
    discovery.know(server.known())
    await discovery.wait_for_listing(server.name, None)
    await asyncio.sleep(10)
    server.began.clear()
    return asyncio.get_running_loop().time()


@pytest.mark.requirement("C-8-triggers", "DISC-background")
async def test_a_list_that_may_have_changed_is_asked_for_in_the_background(discovery: Discovery) -> None:
    server = Server(takes_s=0)
    now = await listed(discovery, server)
    server.tools = [raw("later")]
    discovery.due(CLOCK)
    await asyncio.sleep(0.29)
    assert (server.began, names(discovery.record(CLOCK))) == ([], ["now"])
    await asyncio.sleep(0.02)
    assert server.began == [pytest.approx(now + 0.3)]
    assert names(discovery.record(CLOCK)) == ["later"]


@pytest.mark.requirement("H-mcp-storm")
async def test_the_log_tells_of_lists_that_are_different_only(
    discovery: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolplug.discovery")
    server = Server(takes_s=0)
    await listed(discovery, server)
    for _ in range(5):
        discovery.due(CLOCK)
        await asyncio.sleep(2)
    server.tools = [raw("later")]
    discovery.due(CLOCK)
    await asyncio.sleep(2)
    assert [record.getMessage() for record in caplog.records] == [
        "server 'clock' lists 1 tool: 1 added",
        "server 'clock' lists 1 tool: 1 added, 1 removed",
    ]


@pytest.mark.requirement("C-8-triggers", "H-mcp-storm")
async def test_a_storm_of_changes_is_one_listing_a_second(discovery: Discovery) -> None:
    server = Server(takes_s=0.01)
    await listed(discovery, server)
    for _ in range(1000):
        discovery.due(CLOCK)
        await asyncio.sleep(0.01)
    await asyncio.sleep(2)
    gaps = [after - before for before, after in zip(server.began, server.began[1:], strict=False)]
    assert 9 <= len(server.began) <= 11
    assert min(gaps) >= 0.999
    assert server.most == 1


async def test_a_change_during_a_listing_is_looked_at_after_it(discovery: Discovery) -> None:
    server = Server(takes_s=5)
    await listed(discovery, server)
    await discovery.wait_for_listing(CLOCK, 1)
    server.tools = [raw("later")]
    discovery.due(CLOCK)
    await asyncio.sleep(5)
    assert names(discovery.record(CLOCK)) == ["now"]
    await asyncio.sleep(6)
    assert (names(discovery.record(CLOCK)), len(server.began)) == (["later"], 2)


@pytest.mark.requirement("C-8-bounded")
async def test_everybody_who_asks_at_once_gets_one_listing(discovery: Discovery) -> None:
    server = Server(takes_s=5)
    discovery.know(server.known())
    records = await asyncio.gather(*(discovery.wait_for_listing(CLOCK, None) for _ in range(20)))
    assert len(server.began) == 1
    assert all(record is records[0] for record in records)


async def test_whoever_waits_hears_of_the_configuration_that_came_meanwhile(discovery: Discovery) -> None:
    old, new = Server(CLOCK, raw("old"), takes_s=20), Server(CLOCK, raw("new"), takes_s=5)
    discovery.know(old.known("h1"))
    waiting = asyncio.create_task(discovery.wait_for_listing(CLOCK, None))
    await asyncio.sleep(1)
    discovery.know(new.known("h2"))
    assert names(await waiting) == ["new"]
    assert (old.running, len(old.began), len(new.began)) == (0, 1, 1)


async def test_whoever_waits_for_a_server_that_is_forgotten_is_told(discovery: Discovery) -> None:
    discovery.know(Server(takes_s=20).known())
    waiting = asyncio.create_task(discovery.wait_for_listing(CLOCK, None))
    await turns()
    await discovery.forget(CLOCK)
    assert (await waiting).status == "never"


async def test_nobody_is_asked_for_a_server_that_is_not_known(discovery: Discovery) -> None:
    discovery.due(ServerName("nobody"))
    await asyncio.sleep(2)
    assert discovery.record(ServerName("nobody")).status == "never"


@pytest.mark.requirement("C-2-rediscover")
async def test_a_list_is_read_again_when_it_is_as_old_as_configured(discovery: Discovery) -> None:
    server = Server(takes_s=0)
    discovery.know(server.known()._replace(rediscover_s=60.0))
    await discovery.wait_for_listing(CLOCK, None)
    now = asyncio.get_running_loop().time()
    server.began.clear()
    await asyncio.sleep(130)
    assert server.began == [pytest.approx(now + 60), pytest.approx(now + 120)]
    discovery.know(server.known()._replace(rediscover_s=None))
    server.began.clear()
    await asyncio.sleep(600)
    assert server.began == []


@pytest.mark.requirement("C-8-announces")
async def test_the_record_says_whether_changes_are_announced(discovery: Discovery, store: FaultyStore) -> None:
    told: list[bool | None] = [None, False, None, True]
    server = Server(takes_s=0)
    discovery.know(server.known()._replace(announces=lambda: told[0]))
    seen: list[bool | None] = []
    for _ in range(len(told)):
        seen.append((await discovery.wait_for_listing(CLOCK, None)).announces_changes)
        told.append(told.pop(0))
    assert seen == [None, False, False, True], "what is known stays known"
    async with service(store) as other:
        assert other.record(CLOCK).announces_changes is True
