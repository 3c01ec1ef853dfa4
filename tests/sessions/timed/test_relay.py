"""Calls on their way to a plugin and back: one answer each, whoever comes, goes, lies or is late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest
from tests.faulty_store import FaultyStore
from tests.sessions.fixtures import (
    LIMITS,
    T1,
    T2,
    added,
    attached,
    call,
    calling,
    definition,
    listening,
    opened,
    registration,
    serving,
    turns,
)
from tests.virtual_time import pass_time

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.errors import ApiError
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.events import ROOM

pytestmark = pytest.mark.anyio


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    session = (await sessions.create(T1)).session
    await session.register(registration("a", "b"))
    return session


def said(result: ToolResult) -> tuple[str, object]:
    return (result.status, result.metadata.get("code"))


def refused(session: Session, request_id: object, value: object = "x") -> str:
    """Why an answer is not taken."""
    with pytest.raises(ApiError) as refusal:
        session.relay.answer(str(request_id), value)
    return refusal.value.code


@pytest.mark.requirement("C-6-relay-id", "DYN-event-request")
async def test_a_call_becomes_a_request_with_an_id_of_its_own_and_its_answer_the_result(session: Session) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a", x=1)
        request = await plugin.next_request()
        assert request["id"] != "c1"
        deadline = datetime.fromisoformat(str(request["deadline"])).timestamp()
        assert deadline == pytest.approx(session.now() + 30, abs=1)
        assert request == {
            "id": request["id"],
            "tool": "a",
            "arguments": {"x": 1},
            "args": {"x": 1},
            "deadline": request["deadline"],
            "attempt": 1,
            "callId": "c1",
            "hostRequestId": "",
        }
        session.relay.answer(str(request["id"]), {"rows": [1]})
        assert await task == ToolResult("c1", "a", '{"rows":[1]}', structured={"rows": [1]})


@pytest.mark.requirement("C-6-result-falsy")
@pytest.mark.parametrize(
    ("value", "output"), [(0, "0"), (False, "false"), ("", ""), (None, "null"), ([], "[]"), ({}, "{}")]
)
async def test_what_is_falsy_is_a_result(session: Session, value: object, output: str) -> None:
    async with serving(session, lambda _: value):
        result = await call(session, "a")
    assert (result.status, result.output) == (ToolStatus.SUCCESS, output)


@pytest.mark.requirement("C-6-grace", "C-6-lease")
async def test_a_call_waits_for_a_plugin_within_the_grace_time(session: Session) -> None:
    task = await calling(session, "a")
    await pass_time(20)
    async with serving(session, lambda request: request["attempt"]):
        assert (await task).output == "1"


@pytest.mark.requirement("C-6-lease")
async def test_a_request_goes_to_the_newest_stream_and_stays_with_it_until_it_ends(session: Session) -> None:
    async with attached(session) as older:
        async with attached(session) as newer:
            task = await calling(session, "a")
            request = await newer.next_request()
            async with attached(session) as newest:
                await turns()
                assert older.asked() == newest.asked() == []
            await turns()
            assert older.asked() == []
        again = await older.next_request()
        assert again == request | {"attempt": 2}
        session.relay.answer(str(again["id"]), "late but right")
        assert (await task).output == "late but right"


@pytest.mark.requirement("C-6-lease")
async def test_a_request_whose_stream_has_ended_waits_for_the_next_one(session: Session) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a")
        first = await plugin.next_request()
    await pass_time(5)
    async with attached(session) as plugin:
        second = await plugin.next_request()
        assert second == first | {"attempt": 2}
        session.relay.answer(str(second["id"]), 2)
        assert refused(session, first["id"]) == "already_answered"
    assert (await task).output == "2"


@pytest.mark.requirement("C-6-lease")
async def test_an_answer_to_the_first_sending_is_as_good_as_one_to_the_second(session: Session) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a")
        request = await plugin.next_request()
    session.relay.answer(str(request["id"]), "without a stream")
    assert (await task).output == "without a stream"
    async with attached(session) as plugin:
        await turns()
        assert plugin.asked() == []


@pytest.mark.requirement("H-relay-wrong-answers", "C-6-result-errors")
async def test_a_wrong_answer_leaves_the_waiting_call_alone(sessions: Sessions, session: Session) -> None:
    other = (await sessions.create(T2)).session
    await other.register(registration("a"))
    async with attached(session) as plugin, attached(other) as stranger:
        mine, theirs = await calling(session, "a"), await calling(other, "a")
        request, foreign = await plugin.next_request(), await stranger.next_request()
        for forged in ("", "c1", "req_", foreign["id"], f"{request['id']} ", str(request["id"]).upper()):
            assert refused(session, forged) == "request_not_found"
        assert refused(other, request["id"]) == "request_not_found"
        assert not mine.done()
        assert not theirs.done()
        session.relay.answer(str(request["id"]), "mine")
        other.relay.answer(str(foreign["id"]), "theirs")
        assert refused(session, request["id"]) == "already_answered"
        assert [(await task).output for task in (mine, theirs)] == ["mine", "theirs"]


@pytest.mark.requirement("C-6-result-errors", "C-6-lease")
async def test_a_call_without_an_answer_times_out_and_its_answer_is_too_late(session: Session) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a")
        request = await plugin.next_request()
        await pass_time(29)
        assert not task.done()
        result = await task
        assert (result.status, result.output) == (ToolStatus.TIMEOUT, 'tool "a" timed out after 30 s')
        assert await plugin.hear_until("tool-cancelled") == {"id": request["id"], "reason": "timeout"}
        assert refused(session, request["id"]) == "too_late"


@pytest.mark.requirement("C-6-lease")
@pytest.mark.parametrize(("asked", "held"), [(1.0, 1.0), (120.0, 120.0), (300.0, 300.0), (301.0, 300.0)])
async def test_a_caller_may_wait_up_to_five_minutes(session: Session, asked: float, held: float) -> None:
    async with attached(session):
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await call(session, "a", within_s=asked)
        assert result.status is ToolStatus.TIMEOUT
        assert loop.time() - began == pytest.approx(held, abs=1.0)


@pytest.mark.requirement("C-6-lease")
async def test_a_caller_that_goes_away_cancels_its_request(session: Session) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a")
        request = await plugin.next_request()
        task.cancel()
        await turns()
        assert await plugin.hear_until("tool-cancelled") == {"id": request["id"], "reason": "cancelled"}
        assert refused(session, request["id"]) == "too_late"
        assert not session.relay.full
    assert task.cancelled()


async def test_an_answered_request_is_not_cancelled_as_well(session: Session) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a")
        request = await plugin.next_request()
        session.relay.answer(str(request["id"]), 1)
        task.cancel()
        await turns()
        assert plugin.reader.idle


async def test_an_answer_that_meets_its_callers_leaving_is_too_late(session: Session) -> None:
    async with attached(session) as plugin:
        task = await calling(session, "a")
        request = await plugin.next_request()
        task.cancel()
        await turns(1)
        assert refused(session, request["id"]) == "too_late"


@pytest.mark.requirement("C-6-call")
async def test_progress_reaches_the_caller(session: Session) -> None:
    heard: list[tuple[object, ...]] = []
    context = CallContext(Principal(tenant="t1"), report=lambda *progress: heard.append(progress))
    async with attached(session) as plugin:
        task = asyncio.create_task(call(session, "a", context=context))
        request = str((await plugin.next_request())["id"])
        session.relay.progress(request, 1, 3, "a third")
        session.relay.progress(request, 2.5, None, None)
        session.relay.answer(request, "done")
        await task
        with pytest.raises(ApiError) as late:
            session.relay.progress(request, 3, 3, None)
    assert heard == [(1, 3, "a third"), (2.5, None, None)]
    assert late.value.code == "already_answered"


@pytest.mark.requirement("C-6-limits")
async def test_a_hundred_calls_wait_and_one_more_does_not(session: Session) -> None:
    async with attached(session) as plugin:
        tasks = [asyncio.create_task(call(session, "a", {"n": n})) for n in range(100)]
        await plugin.hear_until("tool-request", 100)
        result = await call(session, "a")
        assert said(result) == (ToolStatus.LIMITED, "too_many_waiting_calls")
        assert result.retry_after_s == 1.0
        for request in plugin.asked():
            session.relay.answer(str(request["id"]), request["arguments"])
        assert [(await task).structured for task in tasks] == [{"n": n} for n in range(100)]
        again = await calling(session, "a")
        session.relay.answer(str((await plugin.next_request())["id"]), "a place")
        assert (await again).output == "a place"


@pytest.mark.requirement("H-relay-plugin-gone", "C-6-detached", "DYN-UX-errors", "C-3-unavailable")
async def test_who_waits_when_the_grace_time_ends_hears_so_and_who_comes_later_at_once(session: Session) -> None:
    async with attached(session) as plugin:
        waiting = [asyncio.create_task(call(session, name, within_s=100.0)) for name in ("a", "b")]
        await plugin.hear_until("tool-request", 2)
    await pass_time(29.9)
    assert not any(task.done() for task in waiting)
    await pass_time(0.2)
    for task in waiting:
        assert said(await task) == (ToolStatus.UNAVAILABLE, "plugin_gone")
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert said(await call(session, "a")) == (ToolStatus.UNAVAILABLE, "plugin_gone")
    assert loop.time() == began


@pytest.mark.requirement("DYN-OQ-3")
@pytest.mark.parametrize("how", ["ended", "expired", "stopped"])
async def test_who_waits_when_the_session_is_over_hears_so(store: FaultyStore, how: str) -> None:
    async with opened(store, limits=replace(LIMITS, ttl_s=10.0)) as sessions:
        session = (await sessions.create(T1)).session
        await session.register(registration("a"))
        executor = session.executor
        task = await calling(session, "a")
        if how == "ended":
            await sessions.end(session, T1)
        elif how == "expired":
            await pass_time(11)
        else:
            await sessions.aclose()
        code = {"ended": "session_ended", "expired": "session_expired", "stopped": "host_stopping"}[how]
        assert said(await task) == (ToolStatus.UNAVAILABLE, code)
        later = await executor.execute(ToolCall("c2", "a", {}), CallContext(Principal(tenant="t1")))
        assert later.status in {ToolStatus.UNKNOWN_TOOL, ToolStatus.UNAVAILABLE}


async def test_a_call_on_its_way_when_the_session_ends_does_not_wait(sessions: Sessions, session: Session) -> None:
    async with attached(session):
        target = session.relay.request
        await sessions.end(session, T1)
        result = await target(ToolCall("c1", "a", {}), CallContext(Principal(tenant="t1")))
    assert isinstance(result, ToolResult)
    assert said(result) == (ToolStatus.UNAVAILABLE, "session_ended")


@pytest.mark.requirement("C-6-lease", "C-6-events-log")
async def test_a_store_that_fails_keeps_no_request_from_its_plugin(session: Session, store: FaultyStore) -> None:
    async with attached(session) as plugin:
        store.down = True
        task = await calling(session, "a", secret="x")
        request = await plugin.next_request()
        session.relay.answer(str(request["id"]), "without a store")
        assert (await task).output == "without a store"
        store.down = False
        logged = await session.log_page(None)
        del request["arguments"], request["args"]
        assert logged is not None
        assert (logged.events[-1].event, logged.events[-1].data) == ("tool-request", request)


async def test_a_request_is_sent_again_while_the_store_fails(session: Session, store: FaultyStore) -> None:
    waiting = await calling(session, "a")
    async with attached(session) as plugin:
        first = await plugin.next_request()
        store.fails = lambda operation: operation == "extend"
    async with attached(session) as plugin:
        assert await plugin.next_request() == first | {"attempt": 2}
        session.relay.answer(str(first["id"]), "again")
        assert (await waiting).output == "again"


async def test_a_log_that_cannot_be_written_is_tried_again_and_complained_of_once(
    session: Session, store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(session, lambda _: 1):
        await turns()
        store.fails = lambda operation: operation == "extend"
        await call(session, "a")
        await pass_time(10)
        store.fails = lambda _: False
        await pass_time(2)
        page = await store.inner.events(f"session/{session.code}", None)
        assert b"tool-request" in page.entries[-1].data
    assert [record.message for record in caplog.records if "written" in record.message] == [
        "the log of a session cannot be written: no extend now; trying until it can"
    ]


@pytest.mark.requirement("H-stream-bounded", "C-6-events-log")
async def test_many_calls_in_no_time_cost_no_reader_its_place(sessions: Sessions, session: Session) -> None:
    async with listening(session) as client, serving(session, lambda _: 1) as plugin:
        for _ in range(600):
            await call(session, "a")
        await pass_time(1)
        await session.update(added("c"), "after")
        await client.hear_until("tool-availability-update")
        assert len(plugin.asked()) == 600
    assert not sessions.counters.resyncs


@pytest.mark.requirement("C-6-event-ids")
async def test_a_request_for_which_no_id_is_left_waits_until_the_log_goes_on(session: Session) -> None:
    async with attached(session) as plugin:
        await plugin.hear_until("plugin-status")
        plugin.reader.told = plugin.heard[-1].id + ROOM - 1
        task = await calling(session, "a")
        assert plugin.reader.idle
        await session.update(added("c"), "goes on")
        request = await plugin.next_request()
        session.relay.answer(str(request["id"]), "at last")
        assert (await task).output == "at last"
    assert [told.event for told in plugin.heard[-2:]] == ["tool-availability-update", "tool-request"]
    assert plugin.heard[-1].id == plugin.heard[-2].id + 1


@pytest.mark.requirement("H-stream-bounded")
async def test_requests_that_are_too_much_together_come_as_fast_as_the_plugin_reads(session: Session) -> None:
    async with attached(session) as plugin:
        await plugin.hear_until("plugin-status")
        tasks = [await calling(session, "a", n=n, text="x" * 800_000) for n in range(3)]
        for n in range(3):
            await plugin.hear()
            request = plugin.asked()[n]
            session.relay.answer(str(request["id"]), n)
            assert (await tasks[n]).output == str(n)
        assert [request["attempt"] for request in plugin.asked()] == [1, 1, 1]


async def test_a_call_of_a_session_whose_record_is_gone_does_not_wait(session: Session, store: FaultyStore) -> None:
    async with attached(session):
        store.hold("events")
        await store.inner.commit(f"session/{session.code}", None)
        assert said(await call(session, "a")) == (ToolStatus.UNAVAILABLE, "session_expired")
        store.go("events")


async def test_a_number_of_any_size_reaches_the_plugin(session: Session) -> None:
    async with serving(session, lambda request: request["arguments"] == {"n": float(2**70)}):
        assert (await call(session, "a", {"n": 2**70})).output == "true"


async def test_arguments_that_are_not_json_reach_nobody(session: Session) -> None:
    async with attached(session) as plugin:
        result = await call(session, "a", {"n": float("nan")})
        assert result.status is ToolStatus.INVALID_ARGUMENTS
        assert plugin.reader.idle


@pytest.mark.requirement("H-stream-bounded")
async def test_a_request_larger_than_a_readers_buffer_reaches_the_plugin(session: Session) -> None:
    await session.register(replace(registration("a"), tools=[definition("a")]))
    async with attached(session) as plugin:
        task = await calling(session, "a", text="x" * 3_000_000)
        request = await plugin.next_request()
        session.relay.answer(str(request["id"]), "taken")
        assert (await task).output == "taken"


async def test_a_result_names_its_status_text_and_data(session: Session) -> None:
    answer = ToolResult(status=ToolStatus.TOOL_ERROR, output="no such row")
    async with serving(session, lambda _: answer):
        assert await call(session, "a") == ToolResult("c1", "a", "no such row", ToolStatus.TOOL_ERROR)


async def test_how_each_request_ended_is_counted(sessions: Sessions, session: Session) -> None:
    async with serving(session, lambda _: 1):
        await call(session, "a")
    async with serving(session, lambda _: ToolResult(status=ToolStatus.TOOL_ERROR, output="no")):
        await call(session, "a")
    async with attached(session):
        await call(session, "a", within_s=1.0)
        (await calling(session, "a")).cancel()
        await turns()
    await pass_time(31)
    await call(session, "a")
    counted = dict(sessions.counters.relayed.ended)
    assert counted == {"answered": 1, "error": 1, "timeout": 1, "cancelled": 1, "plugin_gone": 1}
