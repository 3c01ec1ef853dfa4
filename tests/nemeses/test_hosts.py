"""Three hosts that are killed, paused and cut off from their store, and clients that go to any of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

import pytest
from tests.nemeses.clients import Outage, clients
from tests.nemeses.clocks import STEPPED_S
from tests.nemeses.fleet import Fleet, fleet
from tests.nemeses.servers import SharedStore, chosen, shared_store

pytestmark = [pytest.mark.judge, pytest.mark.long(90), pytest.mark.anyio, pytest.mark.requirement("I17-6-nemeses")]

HEALTHY_S = 2.0
"""Between two faults, so that clients get somewhere."""
PAST_LEASE_S = 8.0
RECOVERED_S = 10.0

Harm = Callable[[Fleet, SharedStore], Awaitable[None]]


async def kill(fleet: Fleet, _: SharedStore) -> None:
    """Kill a host and start it again."""
    host = fleet.any()
    host.kill()
    await asyncio.sleep(1)
    await host.start()


async def kill_all_but_one(fleet: Fleet, _: SharedStore) -> None:
    """Kill two hosts at once, and start them again."""
    hosts = fleet.random.sample(fleet.hosts, len(fleet.hosts) - 1)
    for host in hosts:
        host.kill()
    await asyncio.sleep(1)
    await asyncio.gather(*(host.start() for host in hosts))


async def pause(fleet: Fleet, _: SharedStore, seconds: float = PAST_LEASE_S) -> None:
    """Stop a host until after its lease has lapsed, and let it go on."""
    host = fleet.any()
    host.send(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    host.send(signal.SIGCONT)


async def falter(fleet: Fleet, store: SharedStore) -> None:
    """Stop a host for less than its lease."""
    await pause(fleet, store, 3)


async def restart_store(_: Fleet, store: SharedStore) -> None:
    """Kill the server of the store and start it again."""
    await store.restart(1)


async def cut(fleet: Fleet, store: SharedStore) -> None:
    """Cut a host off from its store until after its lease has lapsed."""
    proxy = fleet.random.choice(store.proxies)
    proxy.unreachable = True
    proxy.cut()
    await asyncio.sleep(PAST_LEASE_S)
    proxy.unreachable = False


async def silence(fleet: Fleet, store: SharedStore) -> None:
    """Let nothing pass between a host and its store, whose connections stay open."""
    proxy = fleet.random.choice(store.proxies)
    proxy.silent = True
    await asyncio.sleep(PAST_LEASE_S)
    proxy.silent = False


async def disturb(_: Fleet, store: SharedStore) -> None:
    """Delay the replies of the store, and end connections in the middle of some."""
    for proxy in store.proxies:
        proxy.longest_delay_s, proxy.cutting = 0.02, True
    await asyncio.sleep(5)
    for proxy in store.proxies:
        proxy.longest_delay_s, proxy.cutting = 0.0, False


async def step_clock(fleet: Fleet, _: SharedStore) -> None:
    """Set the clock of a host an hour ahead, an hour back, and right again; the store has a clock of its own."""
    clock = fleet.any().clock
    assert clock is not None
    for offset_s in (3600, -3600, 0):
        clock.step(offset_s)
        await asyncio.sleep(2 * STEPPED_S)


HARMS: tuple[Harm, ...] = (kill, pause, falter, kill_all_but_one)
OUTAGES: tuple[Harm, ...] = (restart_store, cut, disturb, silence)
HARMS_OF_SERVERS: tuple[Harm, ...] = (kill, restart_store, cut, pause, disturb, silence, step_clock)


@pytest.mark.parametrize("name", chosen())
async def test_a_session_stays_linearizable_and_its_calls_end_once(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outages: list[Outage] = []
    rounds = int(os.environ.get("TOOLPLUG_NEMESES_ROUNDS", "1"))
    async with shared_store(name, 3) as store:
        more = [{"store": url} for url in store.urls]
        clocks = bool(store.proxies)
        async with (
            fleet(tmp_path, store.urls[0], 17, more=more, own_clocks=clocks) as hosts,
            clients(hosts) as all_of_them,
        ):
            async with all_of_them.run():
                for harm in (HARMS_OF_SERVERS if store.proxies else HARMS) * rounds:
                    await asyncio.sleep(HEALTHY_S)
                    began = monotonic()
                    await harm(hosts, store)
                    if harm in OUTAGES:
                        outages.append(Outage(began, monotonic()))
                await asyncio.sleep(RECOVERED_S)
            await all_of_them.last_look()
            assert all_of_them.violations(outages) == []
    history = all_of_them.history
    updates = sum(update.revision is not None for update in history.updates)
    answered = sum(call.status == "success" for call in all_of_them.calls.values())
    assert min(updates, len(history.reads), len(history.entries), answered) > 50
    seen = f"{updates} updates, {len(history.reads)} reads, {answered} of {len(all_of_them.calls)} calls answered"
    record_property("figure", f"nemeses, {name}: {seen}")
