"""The connection behind calls: when it opens, how it is lost, how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.mcp.servers.scripted import TIME, ScriptedServer, settled

from toolplug.parts.mcp.client.connection import ConnectionFailed, ServerConnection
from toolplug.parts.mcp.client.connection_strategies import STEADY_S, PersistentConnection, Restarts, ServerDown
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio


class LinkHarness:
    """A link over a scripted server, on a clock of the test's."""

    def __init__(self) -> None:
        self.clock = ManualClock(0.0)
        self.script = ScriptedServer()
        self.restarts = Restarts(self.clock, lambda: 0.0)
        self.link = PersistentConnection(
            TIME, self.script.connect, lambda: None, restarts=self.restarts, clock=self.clock
        )

    async def call(self) -> str:
        """The text of an answer, or how long the server is left alone, None for nobody knows."""
        try:
            answer = await self.link.call("now", {}, None)
        except ServerDown as down:
            return f"down for {down.retry_after_s}"
        return str(answer.content[0]["text"])


@pytest.fixture
async def harness() -> AsyncIterator[LinkHarness]:
    opened = LinkHarness()
    yield opened
    await opened.link.aclose()


@pytest.mark.requirement("H-mcp-dies")
async def test_calls_of_a_server_that_dies_are_answered_at_once(harness: LinkHarness) -> None:
    await harness.call()
    harness.script.answering = asyncio.Event()
    calls = [asyncio.create_task(harness.call()) for _ in range(3)]
    await settled()
    harness.script.connections[0].die()
    assert [await call for call in calls] == ["down for None"] * 3


@pytest.mark.requirement("H-mcp-restart")
async def test_a_server_that_lasted_is_started_again_at_once_when_it_is_needed(harness: LinkHarness) -> None:
    await harness.call()
    harness.clock.now = STEADY_S
    harness.script.connections[0].die()
    await settled()
    assert (harness.script.tried, harness.script.running) == (1, 0)
    assert await harness.call() == "now of 2"


@pytest.mark.requirement("H-mcp-restart")
async def test_a_server_that_does_not_last_is_left_alone_for_longer_each_time(harness: LinkHarness) -> None:
    paused: list[str] = []
    for _ in range(8):
        await harness.call()
        harness.script.connections[-1].die()
        await settled()
        paused.append(await harness.call())
        harness.clock.now += harness.restarts.pause_s()
    assert paused == [f"down for {float(pause)}" for pause in (1, 2, 4, 8, 16, 32, 60, 60)]
    await harness.call()
    harness.clock.now += STEADY_S
    harness.script.connections[-1].die()
    await settled()
    assert await harness.call() == "now of 10"


@pytest.mark.requirement("H-mcp-restart")
async def test_a_server_that_cannot_be_started_is_tried_once_for_all_and_then_left_alone(harness: LinkHarness) -> None:
    harness.script.fails = ConnectionFailed("no such program")
    assert await asyncio.gather(*(harness.call() for _ in range(3))) == ["down for 1.0"] * 3
    assert await harness.call() == "down for 1.0"
    assert harness.script.tried == 1
    harness.clock.now += 1
    harness.script.fails = None
    assert await harness.call() == "now of 1"


@pytest.mark.requirement("H-mcp-restart")
async def test_a_call_that_notices_the_end_before_anybody_else_does_not_start_the_server_too_early(
    harness: LinkHarness,
) -> None:
    await harness.call()
    harness.script.connections[0].die()
    assert await harness.call() == "down for 1.0"
    await settled()
    assert (harness.restarts.pause_s(), harness.script.tried) == (1.0, 1)


async def test_pauses_are_shorter_by_chance(harness: LinkHarness) -> None:
    lucky = Restarts(harness.clock, lambda: 1.0)
    assert [lucky.record_failure() for _ in range(8)] == [0.75, 1.5, 3, 6, 12, 24, 45, 45]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(3)])
async def test_whatever_opening_raises_is_a_server_that_is_down(harness: LinkHarness, error: BaseException) -> None:
    harness.script.fails = error
    assert await harness.call() == "down for 1.0"


async def test_a_server_that_is_never_ready_is_given_up(harness: LinkHarness) -> None:
    harness.script.holds = asyncio.Event()
    server = replace(TIME, discovery_timeout_s=0.01)
    link = PersistentConnection(server, harness.script.connect, lambda: None, restarts=harness.restarts)
    with pytest.raises(ServerDown, match="its server 'time' is down"):
        await link.call("now", {}, None)
    assert harness.restarts.pause_s() == 1.0
    await link.aclose()


async def test_whoever_goes_away_while_the_server_starts_costs_the_others_nothing(harness: LinkHarness) -> None:
    harness.script.holds = asyncio.Event()
    first, second = (asyncio.create_task(harness.call()) for _ in range(2))
    await settled()
    first.cancel()
    await settled()
    harness.script.holds.set()
    assert await second == "now of 1"


async def test_the_end_leaves_the_connection_and_answers_what_runs_and_what_comes(harness: LinkHarness) -> None:
    await harness.call()
    harness.script.answering = asyncio.Event()
    call = asyncio.create_task(harness.call())
    await settled()
    await harness.link.aclose()
    assert await call == "down for None"
    assert await harness.call() == "down for None"
    assert (harness.script.tried, harness.script.left) == (1, 1)
    await harness.link.aclose()
    assert harness.script.left == 1


async def test_the_end_stops_a_start_that_is_under_way(harness: LinkHarness) -> None:
    harness.script.holds = asyncio.Event()
    call = asyncio.create_task(harness.call())
    await asyncio.sleep(0)
    await harness.link.aclose()
    assert await call == "down for None"
    assert harness.script.connections == []


async def test_nothing_goes_over_a_connection_before_it_has_begun(harness: LinkHarness) -> None:
    calls_before: list[int] = []

    async def begin(connection: ServerConnection) -> None:
        await asyncio.sleep(0)
        calls_before.append(len(harness.script.connections[-1].calls))

    link = PersistentConnection(TIME, harness.script.connect, lambda: None, begin=begin)
    await asyncio.gather(*(link.call("now", {}, None) for _ in range(3)))
    assert calls_before == [0]
    await link.aclose()
