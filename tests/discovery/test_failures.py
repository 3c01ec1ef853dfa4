"""A server that fails, hangs or does not stop: what stays, when it is tried again, and who notices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.discovery.fixtures import CLOCK, Server, names, raw, service, turns
from tests.faulty_store import FaultyStore

from toolplug.parts.mcp.discovery.record import KnownServer, ServerName
from toolplug.parts.mcp.discovery.service import Discovery
from toolplug.parts.mcp.discovery.watched_server import backoff_s

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("DISC-failure-recorded", "DISC-add-failed", "DISC-status")
async def test_a_failure_is_recorded_with_its_error(discovery: Discovery) -> None:
    server = Server()
    server.fails("the command\u202e\nended " + "x" * 1000)
    discovery.know(server.known())
    record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.status, record.tools, record.stale) == ("failed", (), False)
    assert record.error == ("the command ended " + "x" * 1000)[:500]
    assert (record.last_discovery, record.next_retry) == ("2023-11-14T22:13:21.000Z", "2023-11-14T22:13:51.000Z")


@pytest.mark.requirement("C-8-last-good", "DISC-not-stale-silently", "DISC-failure-graceful")
async def test_a_failed_refresh_keeps_the_last_good_tools_as_stale(discovery: Discovery) -> None:
    server = Server()
    discovery.know(server.known())
    good = await discovery.wait_for_listing(CLOCK, None)
    server.fails()
    await discovery.wait_for_listing(CLOCK, 0)
    await turns()
    assert (discovery.record(CLOCK).status, discovery.record(CLOCK).stale) == ("discovering", False)
    record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.status, record.stale, record.error) == ("failed", True, "the command ended with 1")
    assert record.tools == good.tools
    await discovery.wait_for_listing(CLOCK, 0)
    await turns()
    assert (discovery.record(CLOCK).status, discovery.record(CLOCK).stale) == ("discovering", True)
    server.works()
    record = await discovery.wait_for_listing(CLOCK, None)
    record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.status, record.stale, record.error, record.next_retry) == ("success", False, None, None)
    assert record.tools[0] is good.tools[0]


async def test_a_new_configuration_that_fails_keeps_the_last_good_tools_as_stale(discovery: Discovery) -> None:
    server = Server()
    discovery.know(server.known("h1"))
    await discovery.wait_for_listing(CLOCK, None)
    server.fails()
    discovery.know(server.known("h2"))
    record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.status, names(record), record.stale, record.config_hash) == ("failed", ["now"], True, "h2")


async def test_a_failed_server_is_tried_again_by_itself_later_and_later(discovery: Discovery) -> None:
    server = Server(takes_s=0)
    server.fails()
    discovery.know(server.known())
    await asyncio.sleep(30 + 60 + 120 + 5)
    assert [round(at) for at in server.began] == [0, 30, 90, 210]
    server.works()
    await asyncio.sleep(240)
    assert discovery.record(CLOCK).status == "success"
    server.fails()
    await discovery.wait_for_listing(CLOCK, None)
    before = len(server.began)
    await asyncio.sleep(31)
    assert len(server.began) == before + 1, "a success begins the count anew"


def test_a_rest_doubles_up_to_an_hour_and_luck_spares_a_quarter() -> None:
    assert [backoff_s(failures, 0.0) for failures in (1, 2, 3, 7, 8, 100)] == [30, 60, 120, 1920, 3600, 3600]
    assert backoff_s(1, 1.0) == 22.5


async def test_a_failure_is_remembered_by_the_next_process(store: FaultyStore) -> None:
    server = Server(takes_s=0)
    server.fails()
    async with service(store) as discovery:
        discovery.know(server.known())
        await discovery.wait_for_listing(CLOCK, None)
    async with service(store) as discovery:
        discovery.know(server.known())
        discovery.due(CLOCK)
        await asyncio.sleep(20)
        assert (discovery.record(CLOCK).status, len(server.began)) == ("failed", 1)
        await asyncio.sleep(11)
        assert len(server.began) == 2
        server.works()
        assert (await discovery.wait_for_listing(CLOCK, None)).status == "success", "whoever asks need not wait"


async def test_a_failure_is_forgotten_with_its_configuration(discovery: Discovery) -> None:
    server = Server(takes_s=0)
    server.fails()
    discovery.know(server.known("h1"))
    await discovery.wait_for_listing(CLOCK, None)
    server.works()
    discovery.know(server.known("h2"))
    await turns()
    assert discovery.record(CLOCK).status == "success"


@pytest.mark.requirement("DISC-timeout", "C-8-bounded")
async def test_a_server_that_hangs_is_given_up_after_its_own_time(discovery: Discovery) -> None:
    server = Server(takes_s=10_000)
    discovery.know(server.known(timeout_s=7.5))
    record = await discovery.wait_for_listing(CLOCK, None)
    assert asyncio.get_running_loop().time() == 7.5
    assert (record.status, record.error) == ("failed", "no list of tools within 7.5 s")
    await turns()
    assert server.running == 0, "the listing was cancelled"


class Stubborn:
    """A server whose listing goes on when it is cancelled, until it is let go."""

    def __init__(self, name: ServerName = CLOCK) -> None:
        self.name = name
        self.let_go = asyncio.Event()
        self.began = 0

    async def listing(self, fresh: bool = False) -> Sequence[object]:
        self.began += 1
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return [raw("late")]

    def known(self, config_hash: str = "h1") -> KnownServer:
        return KnownServer(self.name, config_hash, self.listing, 10.0)


@pytest.mark.requirement("C-8-bounded", "DISC-timeout")
async def test_a_listing_that_does_not_stop_is_given_up_and_no_other_begins_beside_it(discovery: Discovery) -> None:
    server = Stubborn()
    discovery.know(server.known())
    record = await discovery.wait_for_listing(CLOCK, None)
    assert record.error == "no list of tools within 10 s"
    record = await discovery.wait_for_listing(CLOCK, None)
    assert (record.error, server.began) == ("its last listing, which was given up, has not ended yet", 1)
    server.let_go.set()
    await turns()
    assert discovery.record(CLOCK).tools == (), "what comes too late is nothing"
    assert names(await discovery.wait_for_listing(CLOCK, None)) == ["late"]


async def test_a_listing_that_does_not_stop_holds_up_the_end_for_a_moment_only(store: FaultyStore) -> None:
    server = Stubborn()
    async with service(store) as discovery:
        discovery.know(server.known())
        await turns()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began <= 5.0
    server.let_go.set()
    await turns()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("secret"), "the listing failed: ValueError"),
        (asyncio.CancelledError("secret"), "the listing was cancelled"),
        (TimeoutError("secret"), "the listing failed: TimeoutError"),
    ],
)
async def test_whatever_a_listing_raises_is_a_failure_of_its_server(
    discovery: Discovery, error: BaseException, text: str
) -> None:
    server = Server(takes_s=0)
    server.error = error
    discovery.know(server.known())
    assert (await discovery.wait_for_listing(CLOCK, None)).error == text
    server.works()
    assert (await discovery.wait_for_listing(CLOCK, None)).status == "success"


@pytest.mark.requirement("DISC-start-one-fails", "C-8-bounded")
async def test_servers_that_hang_or_die_cost_the_others_nothing(discovery: Discovery) -> None:
    servers = [Server(ServerName(f"s{n}"), takes_s=0.1) for n in range(50)]
    for server in servers[:5]:
        server.takes_s = 10_000
    for server in servers[5:10]:
        server.fails()
    for server in servers:
        discovery.know(server.known())
    running: list[int] = []
    for _ in range(60):
        await asyncio.sleep(0.1)
        running.append(sum(server.running for server in servers))
    statuses = [discovery.record(server.name).status for server in servers]
    assert statuses == ["discovering"] * 5 + ["failed"] * 5 + ["success"] * 40
    assert max(running) <= 4 + 5
    assert asyncio.get_running_loop().time() == pytest.approx(6.0)


async def test_no_more_run_at_once_than_may_however_many_hang(discovery: Discovery) -> None:
    servers = [Server(ServerName(f"s{n}"), takes_s=10_000) for n in range(50)]
    for server in servers:
        discovery.know(server.known())
    running: list[int] = []
    for _ in range(100):
        await asyncio.sleep(1)
        running.append(sum(server.running for server in servers))
    assert max(running) == 16
    await asyncio.sleep(100)
    assert all(len(server.began) > 1 for server in servers), "each has its turn, and another"


async def test_a_fault_of_our_own_costs_a_server_a_moment_and_the_others_nothing(
    store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    draws = iter([1.0])

    def luck() -> float:
        if next(draws, 0.0):
            raise ZeroDivisionError
        return 0.0

    broken, fine = Server(takes_s=0), Server(ServerName("fine"), takes_s=0)
    broken.fails()
    async with Discovery(store, luck=luck) as discovery:
        discovery.know(broken.known())
        discovery.know(fine.known())
        await asyncio.sleep(1)
        assert discovery.record(fine.name).status == "success"
        assert discovery.record(CLOCK).status == "discovering"
        assert "the discovery of server 'clock' failed" in caplog.text
        broken.works()
        await asyncio.sleep(30)
        assert discovery.record(CLOCK).status == "success"
