"""MCP sessions of the era of handshakes, whose requests reach one process or another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.faulty_store import FaultyStore

from toolplug.cluster.processes import Processes
from toolplug.parts.mcp.serving.mcp_sessions import Handshake, SessionOwner
from toolplug.parts.mcp.serving.peer_sessions import PeerMcpSessions
from toolplug.parts.mcp.serving.server_endpoint import Client, ClientAnswer
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-mcp", "I17-2-mcp")]

CLIENT = Client("2025-11-25", {"name": "test"}, {"elicitation": {}})
ALICE, BOB = SessionOwner("t1", "alice"), SessionOwner("t1", "bob")

Two = tuple[PeerMcpSessions, PeerMcpSessions]


class Ended(list[str]):
    """The ids of sessions that are over, in order."""

    def __call__(self, handshake: Handshake) -> None:
        self.append(handshake.id)


@pytest.fixture
def ended() -> Ended:
    return Ended()


@pytest.fixture
async def two(ended: Ended) -> AsyncIterator[Two]:
    async with AsyncExitStack() as life:
        inner = await life.enter_async_context(MemoryStore())
        found: list[PeerMcpSessions] = []
        for number in range(2):
            store = FaultyStore(inner)
            store.id, store.shared = f"process{number}", True
            processes = await life.enter_async_context(Processes(store))
            sessions = PeerMcpSessions(store, processes, over=ended)
            found.append(await life.enter_async_context(sessions))
            life.callback(sessions.stop)
        yield found[0], found[1]


async def both(two: Two) -> tuple[Handshake, Handshake]:
    """One session as both processes have it."""
    begun = await two[0].begin(ALICE, CLIENT)
    found = await two[1].find_shared(begun.id, ALICE)
    assert found is not None
    return begun, found


async def heard() -> None:
    """Let the processes hear of each other."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_session_is_found_by_its_owner_in_any_process(two: Two) -> None:
    begun, found = await both(two)
    assert (found.id, found.owner, found.client) == (begun.id, ALICE, CLIENT)
    assert await two[1].find_shared(begun.id, ALICE) is found
    assert await two[0].find_shared(begun.id, BOB) is None
    assert await two[1].find_shared(begun.id, BOB) is None
    assert await two[1].find_shared("unknown", ALICE) is None


async def test_the_end_in_one_process_is_one_in_all(two: Two, ended: Ended) -> None:
    begun, found = await both(two)
    cancelled: list[str] = []
    found.running[1] = lambda: cancelled.append("call")
    await two[0].finish(begun)
    await heard()
    assert cancelled == ["call"]
    assert ended == [begun.id] * 2
    assert await two[0].find_shared(begun.id, ALICE) is None
    assert await two[1].find_shared(begun.id, ALICE) is None


async def test_a_request_is_cancelled_in_the_process_in_which_it_runs(two: Two) -> None:
    begun, found = await both(two)
    cancelled: list[object] = []
    begun.running[7] = lambda: cancelled.append(7)
    for request in ("7", 8, None, [7]):
        await two[1].cancel(found, request)
    await heard()
    assert cancelled == []
    await two[1].cancel(found, 7)
    await heard()
    assert cancelled == [7]
    await two[0].cancel(begun, 7)
    assert cancelled == [7, 7]


async def test_an_answer_reaches_the_process_that_asked(two: Two) -> None:
    begun, found = await both(two)
    asked: list[str] = []

    async def send(question: str) -> None:
        asked.append(question)

    questions = [asyncio.create_task(one.questions.ask(send)) for one in (begun, found)]
    await heard()
    assert len(set(asked)) == 2
    await two[1].take_answer(found, ClientAnswer(asked[0], {"action": "accept"}))
    await two[0].take_answer(begun, ClientAnswer(asked[1], None))
    assert await asyncio.gather(*questions) == [{"action": "accept"}, None]


async def test_a_newer_stream_ends_that_of_another_process(two: Two) -> None:
    begun, found = await both(two)
    ended: list[str] = []
    begun.stream, found.stream = lambda: ended.append("first"), lambda: ended.append("second")
    await two[1].streams_here(found)
    await heard()
    assert ended == ["first"]


async def test_found_tools_are_known_to_all_processes(two: Two) -> None:
    begun, found = await both(two)
    begun.found.add(["weather", "stocks"])
    await two[0].share_found(begun)
    await two[0].share_found(begun)
    await heard()
    assert found.found.names == ("weather", "stocks")
    later = await two[0].begin(ALICE, CLIENT)
    later.found.add(["news"])
    await two[0].share_found(later)
    adopted = await two[1].find_shared(later.id, ALICE)
    assert adopted is not None
    assert adopted.found.names == ("news",)


async def test_what_was_not_heard_is_read_from_the_log(two: Two) -> None:
    begun, found = await both(two)
    cancelled: list[object] = []
    begun.running[1] = lambda: cancelled.append(1)
    store = two[0]._store
    assert isinstance(store, FaultyStore)
    store.fails = lambda operation: operation == "watch"
    await two[1].cancel(found, 1)
    await heard()
    store.fails = lambda _: False
    async with asyncio.timeout(10):
        while not cancelled:
            await asyncio.sleep(0.05)
