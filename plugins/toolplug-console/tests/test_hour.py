"""The last hour: remembered while nobody looks, in all processes of a store, and after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from toolplug import CallContext, Principal, ToolDefinition, ToolResult, ToolStatus
from toolplug.providers.site import ProviderRecords
from toolplug.stores.memory import MemoryStore
from toolplug_console.feed import CallFeed
from toolplug_console.hour import (
    BOUNDS_S,
    MAX_TENANTS,
    MAX_TOOLS_OF_TENANT,
    TICKS,
    CalledTool,
    Hour,
    bucket_of,
    quantile,
)
from toolplug_console.shared_hour import SharedHour

from .test_calls import ALICE, BOB, ROOT, listed

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]

NOW = 1_800_000_000.0
PRICE = CalledTool("t1", "native", "shop", "price")
HOUR = "/console/hour"


class Clock:
    """A clock that a test moves."""

    now = NOW

    def __call__(self) -> float:
        return self.now


def sums(numbers: Any) -> tuple[int, int, list[tuple[str, int, int]]]:
    """The calls and failures of an hour, in all and by tool."""
    tools = [(each["tool"], sum(each["calls"]), sum(each["failed"])) for each in numbers["tools"]]
    calls, failed = (sum(numbers[name]) + numbers["open"][name] for name in ("calls", "failed"))
    return calls, failed, sorted(tools)


async def hour_of(caller: Any, calls: int) -> Any:
    """The hour as a visitor sees it, once it has this many calls."""
    for _ in range(100):
        found = (await caller.client.get(HOUR)).json()
        if sums(found)[0] >= calls:
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(f"no {calls} calls in {found}")


@pytest.mark.requirement("I33-hour")
async def test_a_visitor_sees_the_calls_from_before_it_came_without_arguments(serve: Serve) -> None:
    async with serve(ALICE, BOB, ROOT) as host:
        alice, bob, root = (host.callers[name] for name in ("alice", "bob", "root"))
        await alice.call("echo", text="a secret text")
        await bob.call("fail")
        await asyncio.sleep(0.3)
        hers, his, all_of_them = [await listed(host, caller) for caller in (alice, bob, root)]
        detail = (await alice.client.get(f"/console/calls/{hers[0]['id']}")).json()
    assert [call["tool"] for call in hers] == ["echo"]
    assert [call["tool"] for call in his] == ["fail"]
    assert [call["tool"] for call in all_of_them] == ["echo", "fail"]
    assert ("arguments" in detail, "a secret text" in str(detail)) == (False, False)


@pytest.mark.requirement("I33-hour")
async def test_the_calls_are_there_after_a_restart_each_for_its_tenant(serve: Serve, tmp_path: Path) -> None:
    config = {"store": f"sqlite:///{tmp_path}/state.db"}
    async with serve(ALICE, BOB, host=config, keep_calls=5) as host:
        await host.callers["alice"].call("crash")
        await host.callers["bob"].call("echo", text="a secret text")
    async with serve(ALICE, BOB, host=config, keep_calls=5) as host:
        alice, bob = host.callers["alice"], host.callers["bob"]
        assert sums(await hour_of(alice, 1)) == (1, 1, [("crash", 1, 1)])
        hers, his = await listed(host, alice), await listed(host, bob)
        detail = (await bob.client.get(f"/console/calls/{his[0]['id']}")).json()
    assert [(call["tool"], call["status"]) for call in hers] == [("crash", "panic")]
    assert [call["tool"] for call in his] == ["echo"]
    assert "arguments" not in detail, "they are kept in the memory of a process alone"


@pytest.mark.requirement("I33-hour")
async def test_the_journal_has_the_calls_of_which_the_console_knows_nothing(serve: Serve, tmp_path: Path) -> None:
    providers = {
        "console": {"enabled": True, "public_routes": True},
        "sample": {"type": f"{Path(__file__).parent / 'conftest.py'}:Sample", "enabled": True},
        "journal": {"enabled": True},
    }
    config = {"providers": providers, "store": f"sqlite:///{tmp_path}/state.db"}
    without = {**config, "providers": {**providers, "console": {"enabled": False}}}
    async with serve(ALICE, BOB, host=without) as host:
        await host.callers["alice"].call("echo", text="x")
        await host.callers["alice"].call("nothing")
        await host.callers["bob"].call("fail")
    async with serve(ALICE, BOB, host=config) as host:
        alice = host.callers["alice"]
        numbers = await hour_of(alice, 2)
        hers = await listed(host, alice)
        await alice.call("echo", text="x")
        await asyncio.sleep(0.3)
        later = await listed(host, alice)
    assert sums(numbers) == (2, 1, [("echo", 1, 0)])
    # In any order: both may have ended in one millisecond.
    assert {(call["tool"], call["status"], call.get("source")) for call in hers} == {
        ("echo", "success", "sample"),
        ("nothing", "unknown_tool", None),
    }
    assert sorted(call["tool"] for call in later) == ["echo", "echo", "nothing"]


@pytest.mark.requirement("I33-hour")
def test_a_call_counts_before_its_tick_has_ended_each_time_the_hour_is_read() -> None:
    clock = Clock()
    hour = Hour(clock)
    clock.now += 60 - clock.now % 60  # a minute of its own, for the tools
    seen: dict[float, list[Any]] = {}
    for seconds in (0.0, 1.0, 4.0):
        clock.now += seconds
        hour.count(PRICE, [0.02], failed=seconds == 1.0, at=clock.now)
        numbers = hour.numbers("t1")
        seen[seconds] = [numbers["open"], numbers["calls"][-1], sums(numbers), numbers["tools"][0]["calls"][-1]]
    assert seen == {
        0.0: [{"calls": 1, "failed": 0}, 0, (1, 0, [("price", 1, 0)]), 1],
        1.0: [{"calls": 2, "failed": 1}, 0, (2, 1, [("price", 2, 1)]), 2],
        4.0: [{"calls": 1, "failed": 0}, 2, (3, 1, [("price", 3, 1)]), 3],
    }
    assert sums(hour.numbers("t2")) == (0, 0, [])
    assert sums(hour.numbers(None)) == (3, 1, [("price", 3, 1)])


@pytest.mark.requirement("I33-hour")
def test_a_call_that_did_not_reach_a_tool_has_no_part_in_the_latency() -> None:
    clock = Clock()
    hour = Hour(clock)
    for duration_s in (0.0, 0.0, 0.02):
        hour.count(PRICE, [duration_s], failed=not duration_s, at=clock.now)
    clock.now += 5
    numbers = hour.numbers("t1")
    assert (numbers["calls"][-1], numbers["failed"][-1]) == (3, 2)
    assert 0.01 <= (numbers["p50"][-1] or 0) <= 0.025


@pytest.mark.requirement("I33-hour")
async def test_calls_that_the_host_refused_have_no_part_in_the_latency(serve: Serve) -> None:
    providers = {
        "console": {"enabled": True, "public_routes": True},
        "sample": {
            "enabled": True,
            "type": f"{Path(__file__).parent / 'conftest.py'}:Sample",
            "tools": {"echo": {"policy": "ask"}, "fail": {"policy": "deny"}},
        },
    }
    async with serve(ALICE, host={"providers": providers}) as host:
        alice = host.callers["alice"]
        for name, arguments in (("echo", {"text": "x"}), ("fail", {}), ("sign_in", {"password": 1})):
            await alice.call(name, **arguments)
        numbers = await hour_of(alice, 3)
    assert (*sums(numbers)[:2], {*numbers["p50"]}) == (3, 2, {None})


PRICE_TOOL = ToolDefinition(name="price")


def answered(feed: CallFeed, tenant: str, status: ToolStatus = ToolStatus.SUCCESS) -> None:
    context = CallContext(principal=Principal(tenant=tenant))
    feed.note(context, ToolResult("c", "price", status=status), PRICE_TOOL, 0.01)


def sorted_hour(*answers: tuple[str, ToolStatus]) -> Hour:
    """The hour of such calls, 3, 1 and 2 of each in three ticks, whose notes were sorted together."""
    clock = Clock()
    hour = Hour(clock)
    feed = CallFeed(lambda on: None, 0, frozenset(), hour, clock)
    for seconds, calls in ((0, 3), (5, 1), (5, 2)):
        clock.now += seconds
        for _ in range(calls):
            for tenant, status in answers:
                answered(feed, tenant, status)
    feed.sort_notes()
    clock.now += 5
    feed.close()
    return hour


@pytest.mark.requirement("I33-hour")
async def test_calls_that_are_sorted_together_count_in_the_tick_in_which_each_ended() -> None:
    success = ToolStatus.SUCCESS
    hour = sorted_hour(("t1", success), ("t1", ToolStatus.TIMEOUT), ("t2", success))
    found = {tenant: hour.numbers(tenant) for tenant in ("t1", "t2", None)}
    assert {tenant: numbers["calls"][-3:] for tenant, numbers in found.items()} == {
        "t1": [6, 2, 4],
        "t2": [3, 1, 2],
        None: [9, 3, 6],
    }
    assert {tenant: numbers["failed"][-3:] for tenant, numbers in found.items()} == {
        "t1": [3, 1, 2],
        "t2": [0, 0, 0],
        None: [3, 1, 2],
    }


@pytest.mark.requirement("I33-hour")
async def test_alike_calls_of_one_caller_count_in_the_tick_in_which_each_ended() -> None:
    numbers = sorted_hour(("t1", ToolStatus.SUCCESS)).numbers("t1")
    assert (numbers["calls"][-3:], sum(numbers["failed"])) == ([3, 1, 2], 0)


@asynccontextmanager
async def process(store: MemoryStore, clock: Clock) -> AsyncGenerator[tuple[CallFeed, Hour, SharedHour]]:
    """The feed, the hour and their exchange in one process of a store."""
    hour = Hour(clock)
    feed = CallFeed(lambda on: None, 0, frozenset(), hour, clock)
    records = ProviderRecords(store, "provider/console/*/")
    yield feed, hour, SharedHour(feed, hour, records, logging.getLogger("console"), clock)
    feed.close()


@pytest.mark.requirement("I33-hour")
async def test_processes_of_a_store_tell_each_other_of_their_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    async with (
        MemoryStore() as store,
        process(store, clock) as (feed, hour, shared),
        process(store, clock) as (other_feed, other_hour, other_shared),
    ):
        with other_feed.viewer(ALICE) as viewer, other_feed.viewer(BOB) as foreign:
            await viewer.batches(1)
            await foreign.batches(1)
            answered(feed, "t1", ToolStatus.PANIC)
            answered(feed, "t1")
            answered(other_feed, "t2")
            clock.now += 5
            for each in (shared, other_shared, shared):
                await each.write_and_read()
            batch = b"".join(await viewer.batches(1))
            his = b"".join(await foreign.batches(1))
        seen = [sums(each.numbers(tenant)) for tenant in ("t1", "t2", None) for each in (hour, other_hour)]
        clock.now += 5
        for each in (shared, other_shared):
            await each.write_and_read()
        again = sums(hour.numbers(None))
    assert batch.count(b'"tool":"price"') == 2
    assert his.count(b'"tool":"price"') == 1
    assert seen == [(2, 1, [("price", 2, 1)])] * 2 + [(1, 0, [("price", 1, 0)])] * 2 + [(3, 1, [("price", 3, 1)])] * 2
    assert again == (3, 1, [("price", 3, 1)])


@pytest.mark.requirement("I33-hour")
async def test_a_store_that_fails_costs_the_exchange_alone(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    store = MemoryStore()  # not open: it refuses everything
    async with process(store, clock) as (feed, hour, shared):
        for _ in range(3):
            answered(feed, "t1")
            clock.now += 5
            await shared.write_and_read()
        numbers = sums(hour.numbers("t1"))
    assert numbers == (3, 0, [("price", 3, 0)])
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("the last hour is not shared with other processes: ")


@pytest.mark.requirement("I33-hour")
async def test_ticks_of_another_release_are_read_as_far_as_they_can_be(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    async with (
        MemoryStore() as store,
        process(store, clock) as (feed, _, shared),
        process(store, clock) as (_, hour, reading),
    ):
        answered(feed, "t1")
        clock.now += 5
        await shared.write_and_read()
        [key] = await store.keys()
        record = await store.read(key)
        assert record is not None
        tick = orjson.loads(record.value)
        tick["calls"][0]["of_a_later_release"] = True
        await store.commit(key, orjson.dumps(tick))
        for name, value in (("a", b"?"), ("b", b"{}"), ("c", b'{"calls": [{}], "numbers": []}')):
            await store.commit(key[:-1] + name + key[-1], value)
        await reading.write_and_read()
        assert sums(hour.numbers("t1")) == (1, 0, [("price", 1, 0)])
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("calls that another process has counted cannot be read: ")


def test_an_hour_survives_clocks_that_were_ahead_its_own_and_that_of_another_process() -> None:
    clock = Clock()
    hour, other = Hour(clock), Hour(clock)
    hour.count(PRICE, [0.02], failed=False, at=clock.now)
    clock.now += 7_200
    for each in (hour, other):
        each.count(PRICE, [0.02], failed=False, at=clock.now)
        clock.now += 5
        each.count(PRICE, [0.02], failed=False, at=clock.now)
    ((ahead, numbers),) = other.take_ended()
    clock.now = NOW + 10
    hour.add(ahead, numbers)
    hour.count(PRICE, [0.02], failed=False, at=clock.now)
    clock.now += 5
    assert sums(hour.numbers("t1"))[0] >= 2
    assert hour.numbers("t1")["calls"][-1] > 0


def test_an_hour_is_remembered_in_ticks_of_five_seconds() -> None:
    clock = Clock()
    hour = Hour(clock)
    hour.count(PRICE, [0.02], failed=False, at=clock.now)
    hour.count(PRICE, [0.02], failed=True, at=clock.now + 4.9)
    clock.now += 5
    numbers = hour.numbers("t1")
    assert (numbers["ends"], len(numbers["calls"]), numbers["calls"][-1], numbers["failed"][-1]) == (NOW + 5, 720, 2, 1)
    clock.now += 5 * (TICKS - 1)
    assert hour.numbers("t1")["calls"][0] == 2
    clock.now += 5
    assert sum(hour.numbers("t1")["calls"]) == 0


def test_what_is_counted_is_bounded_whatever_callers_name() -> None:
    clock = Clock()
    hour = Hour(clock)
    for number in range(1_000):
        hour.count(CalledTool(f"t{number}", "native", "shop", "price"), [0.1], failed=False, at=clock.now)
        hour.count(CalledTool("t0", "native", "shop", f"tool_{number}"), [0.1], failed=False, at=clock.now)
    clock.now += 5
    of_all, of_first, of_last = (hour.numbers(tenant) for tenant in (None, "t0", "t999"))
    [(_, numbers)] = hour.take_ended()
    assert (of_all["calls"][-1], of_first["calls"][-1], of_last["calls"][-1]) == (2_000, 1_001, 0)
    assert len(numbers["totals"]) == MAX_TENANTS + 1
    assert len(of_first["tools"]) == MAX_TOOLS_OF_TENANT


@pytest.mark.parametrize("seconds", [0.0012, 0.047, 0.4, 2.1, 29.0, 250.0])
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_percentile_is_near_the_call_that_it_comes_from(seconds: float, share: float) -> None:
    buckets = [0] * (len(BOUNDS_S) + 1)
    buckets[bucket_of(seconds) or 0] = 3
    assert quantile(share, buckets) == pytest.approx(seconds, rel=0.125)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 0.01), (0.95, 2.0)])
def test_a_percentile_leaves_its_share_of_the_calls_below(share: float, expected: float) -> None:
    buckets = [0] * (len(BOUNDS_S) + 1)
    for seconds, calls in ((0.01, 90), (2.0, 10)):
        buckets[bucket_of(seconds) or 0] = calls
    assert quantile(share, buckets) == pytest.approx(expected, rel=0.125)


def test_no_call_has_no_percentile_and_the_longest_has_the_last_bound() -> None:
    assert quantile(0.5, [0] * (len(BOUNDS_S) + 1)) is None
    assert quantile(0.5, [0] * len(BOUNDS_S) + [1]) == round(BOUNDS_S[-1], 6)
