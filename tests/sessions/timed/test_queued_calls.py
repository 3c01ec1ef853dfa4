"""Calls whose callers come back for the result: each is run once more after a restart, and its result is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex

import pytest
from tests.faulty_store import FaultyStore
from tests.sessions.fixtures import T1, T2, attached, opened, registration, serving, turns
from tests.virtual_time import pass_time

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolStatus
from toolplug.cluster.processes import Processes
from toolplug.errors import ApiError
from toolplug.execution.executor import ToolExecutor
from toolplug.parts.sessions.queued_calls import QueuedCall, QueuedCalls
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.providers.authoring import tool
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.registry import FunctionRegistry

pytestmark = pytest.mark.anyio

MOST = 100


@asynccontextmanager
async def queueing(
    store: FaultyStore, sessions: Sessions, tools: ToolExecutor | None = None
) -> AsyncIterator[QueuedCalls]:
    """Queued calls over these sessions, resumed as a host does it, each time by another process.

    `tools`: those that are called instead of the session's own.
    """

    def executor_for(principal: Principal, agent: str | None, code: str) -> ToolExecutor:
        return sessions.known_session(code, principal.tenant).executor if tools is None else tools

    store.id = token_hex(4)
    queued = QueuedCalls(store, executor_for, Processes(store))
    queued.resume(sessions.load)
    try:
        yield queued
    finally:
        await queued.aclose()


@pytest.fixture
async def queued(store: FaultyStore, sessions: Sessions) -> AsyncIterator[QueuedCalls]:
    async with queueing(store, sessions) as queued:
        yield queued


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    session = (await sessions.create(T1)).session
    await session.register(registration("a"))
    return session


async def start(
    queued: QueuedCalls, session: Session, tool: str = "a", *, within_s: float = 30.0, most: int = MOST
) -> str:
    deadline = asyncio.get_running_loop().time() + within_s
    context = CallContext(Principal(tenant=session.tenant), deadline=deadline)
    return await queued.start(session, ToolCall("c1", tool, {"x": 1}), context, most=most)


async def done(queued: QueuedCalls, session: Session, call_id: str) -> QueuedCall:
    """The call when it is done."""
    while (call := await queued.look(session, call_id)).status != "done":
        await pass_time(0.5)
    return call


@pytest.mark.requirement("C-6-call-no-wait")
async def test_a_queued_call_is_asked_under_its_id_and_its_result_is_kept(
    session: Session, queued: QueuedCalls
) -> None:
    call_id = await start(queued, session)
    assert await queued.look(session, call_id) == QueuedCall(call_id, "c1", "queued", None)
    async with attached(session) as plugin:
        request = await plugin.next_request()
        assert (request["id"], request["arguments"]) == (call_id, {"x": 1})
        assert (await queued.look(session, call_id)).status == "sent"
        session.relay.answer(call_id, {"y": 2})
    found = await done(queued, session, call_id)
    assert found.result is not None
    assert (found.call_id, found.result.call_id, found.result.structured) == ("c1", "c1", {"y": 2})


@pytest.mark.requirement("I3-2-queued-restart", "I3-2-restart")
async def test_a_queued_call_is_run_after_a_restart(store: FaultyStore) -> None:
    async with opened(store) as before, queueing(store, before) as queued:
        session = (await before.create(T1)).session
        await session.register(registration("a"))
        call_id = await start(queued, session)
        async with attached(session) as plugin:
            await plugin.next_request()
    async with opened(store) as after, queueing(store, after) as queued:
        session = await after.find(session.code, "t1")
        async with serving(session, lambda request: request["id"]):
            found = await done(queued, session, call_id)
        assert found.result is not None
        assert found.result.output == call_id


class Shop(FunctionProvider):
    """Tools that count their runs; the first run of each does not end."""

    runs: list[str]

    @tool
    async def order(self, x: int) -> str:
        """Order."""
        return await self._run("order")

    @tool(idempotent=True)
    async def put(self, x: int) -> str:
        """Put."""
        return await self._run("put")

    async def _run(self, name: str) -> str:
        self.runs.append(name)
        if self.runs.count(name) == 1:
            await asyncio.Event().wait()
        return name


@pytest.mark.requirement("C-6-queued-lost")
async def test_only_a_queued_call_that_is_safe_to_repeat_is_run_after_a_restart(store: FaultyStore) -> None:
    shop = Shop()
    shop.runs = []
    async with FunctionRegistry({"shop": shop}) as tools:
        async with opened(store) as before, queueing(store, before, tools) as queued:
            session = (await before.create(T1)).session
            ids = [await start(queued, session, name) for name in ("order", "put")]
            await turns()
        async with opened(store) as after, queueing(store, after, tools) as queued:
            session = await after.find(session.code, "t1")
            found = [(await done(queued, session, call_id)).result for call_id in ids]

    assert [result and (result.status, result.metadata.get("code")) for result in found] == [
        (ToolStatus.TOOL_ERROR, "outcome_unknown"),
        (ToolStatus.SUCCESS, None),
    ]
    assert shop.runs == ["order", "put", "put"]


@pytest.mark.requirement("I3-2-queued-restart")
async def test_a_queued_call_that_a_signal_leaves_unanswered_is_run_after_the_restart(store: FaultyStore) -> None:
    async with opened(store) as before, queueing(store, before) as queued:
        session = (await before.create(T1)).session
        await session.register(registration("a"))
        call_id = await start(queued, session)
        async with attached(session) as plugin:
            await plugin.next_request()
            before.stop()
            await plugin.hear_out()
            assert plugin.of("tool-cancelled") == []
        await turns()
        assert (await queued.look(session, call_id)).result is None
    async with opened(store) as after, queueing(store, after) as queued:
        session = await after.find(session.code, "t1")
        async with serving(session, lambda request: request["id"]):
            found = await done(queued, session, call_id)
        assert found.result is not None
        assert found.result.output == call_id


@pytest.mark.slow
@pytest.mark.requirement("I3-2-queued-restart")
async def test_a_restart_finds_the_one_unfinished_call_among_very_many(store: FaultyStore) -> None:
    async with opened(store) as before, queueing(store, before) as queued:
        session = (await before.create(T1)).session
        await session.register(registration("a"))
        async with serving(session, lambda _: 1):
            for _ in range(12):
                await asyncio.gather(*(start(queued, session) for _ in range(90)))
                await turns()
        unfinished = await start(queued, session)
    async with opened(store) as after, queueing(store, after) as queued:
        session = await after.find(session.code, "t1")
        async with attached(session) as plugin:
            assert (await plugin.next_request())["id"] == unfinished
            await turns()
            assert len(plugin.asked()) == 1


@pytest.mark.requirement("I3-2-queued-restart")
async def test_a_call_that_comes_while_earlier_ones_are_looked_for_is_run_once(store: FaultyStore) -> None:
    async with opened(store) as sessions:
        session = (await sessions.create(T1)).session
        await session.register(registration("a"))
        store.hold("keys")
        async with queueing(store, sessions) as queued, attached(session) as plugin:
            call_id = await start(queued, session)
            await turns()
            store.go("keys")
            await turns()
            await plugin.next_request()
            await turns()
            assert [request["id"] for request in plugin.asked()] == [call_id]


async def test_a_result_is_kept_when_the_store_is_back(
    session: Session, queued: QueuedCalls, store: FaultyStore
) -> None:
    async with attached(session) as plugin:
        call_id = await start(queued, session)
        await plugin.next_request()
        store.fails = lambda operation: operation == "commit"
        session.relay.answer(call_id, "not to be had again")
        await pass_time(10)
        store.fails = lambda _: False
        found = await done(queued, session, call_id)
        assert found.result is not None
        assert found.result.output == "not to be had again"
        assert len(plugin.asked()) == 1


async def test_calls_are_looked_for_until_the_store_is_there(store: FaultyStore) -> None:
    async with opened(store) as before, queueing(store, before) as queued:
        session = (await before.create(T1)).session
        await session.register(registration("a"))
        call_id = await start(queued, session)
    async with opened(store) as after:
        session = await after.find(session.code, "t1")
        store.fails = lambda operation: operation in {"keys", "read"}
        async with queueing(store, after) as queued:
            await pass_time(5)
            store.fails = lambda _: False
            async with serving(session, lambda _: "found"):
                assert (await done(queued, session, call_id)).result is not None


@pytest.mark.requirement("C-6-call-no-wait")
@pytest.mark.parametrize("call_id", ["", "c1", "req_", "req_" + "0" * 24, "req_" + "0" * 600, "req_\x00", "../x", "ä"])
async def test_an_id_that_is_none_of_the_sessions_is_not_found(
    session: Session, queued: QueuedCalls, call_id: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        await queued.look(session, call_id)
    assert (refusal.value.code, refusal.value.param) == ("request_not_found", "id")


@pytest.mark.requirement("DYN-AC-10")
async def test_a_call_of_another_session_is_not_found(
    sessions: Sessions, session: Session, queued: QueuedCalls
) -> None:
    other = (await sessions.create(T2)).session
    call_id = await start(queued, session)
    with pytest.raises(ApiError):
        await queued.look(other, call_id)


@pytest.mark.requirement("C-6-limits")
async def test_so_many_calls_are_queued_and_no_more(session: Session, queued: QueuedCalls) -> None:
    await asyncio.gather(*(start(queued, session, most=3) for _ in range(3)))
    with pytest.raises(ApiError) as refusal:
        await start(queued, session, most=3)
    assert (refusal.value.code, refusal.value.retry_after_s) == ("too_many_waiting_calls", 1.0)


async def test_a_call_may_wait_longer_than_its_session_remembers(sessions: Sessions, store: FaultyStore) -> None:
    session = (await sessions.create(T1, ttl_s=5)).session
    await session.register(registration("a"))
    async with queueing(store, sessions) as queued, attached(session) as plugin:
        call_id = await start(queued, session, within_s=100.0)
        await plugin.next_request()
        await pass_time(90)
        assert (await queued.look(session, call_id)).status == "sent"
        session.relay.answer(call_id, 1)
        assert (await done(queued, session, call_id)).result is not None


async def test_who_borrows_the_id_of_a_queued_call_gets_one_of_its_own(session: Session, queued: QueuedCalls) -> None:
    async with attached(session) as plugin:
        call_id = await start(queued, session)
        await plugin.next_request()
        borrowed = asyncio.create_task(session.executor.execute(ToolCall(call_id, "a", {}), CallContext(T1)))
        request = await plugin.next_request()
        assert request["id"] != call_id
        session.relay.answer(call_id, "queued")
        session.relay.answer(str(request["id"]), "borrowed")
        assert (await borrowed).output == "borrowed"
        found = await done(queued, session, call_id)
        assert found.result is not None
        assert found.result.output == "queued"


async def test_a_call_of_a_session_that_ends_is_done(
    sessions: Sessions, session: Session, queued: QueuedCalls, store: FaultyStore
) -> None:
    call_id = await start(queued, session)
    await turns()
    await sessions.end(session, T1)
    await turns()
    found = await queued.look(session, call_id)
    assert found.result is not None
    assert found.result.status is ToolStatus.UNAVAILABLE


async def test_an_unreadable_session_keeps_no_other_from_being_resumed(
    store: FaultyStore, sessions: Sessions, session: Session
) -> None:
    async with queueing(store, sessions) as queued:
        call_id = await start(queued, session)
    key = f"queued/{session.code}/{call_id}"
    record = await store.read(key)
    assert record is not None
    await store.commit("session/AAAAAAAA", b"{}", ttl_s=3600)
    await store.commit(f"queued/AAAAAAAA/{call_id}", record.value)
    async with queueing(store, sessions) as queued, attached(session) as plugin:
        request = await plugin.next_request()
        session.relay.answer(str(request["id"]), "resumed")
        assert (await done(queued, session, call_id)).result is not None
