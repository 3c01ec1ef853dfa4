"""Several processes that serve the same sessions over one store: whichever is asked, the answer is the same."""

from __future__ import annotations

import asyncio

import pytest
from tests.sessions.fixtures import (
    T1,
    added,
    attached,
    call,
    calling,
    listed,
    listening,
    names,
    turns,
)
from tests.sessions.timed.processes import Process, Three, new_session, promptly, refusal
from tests.virtual_time import pass_time, virtual_clock

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.errors import ApiError, SessionGone, StoreUnavailable
from toolplug.execution.executor import ToolExecutor
from toolplug.parts.sessions.peers.shared_records import RecordedProgress
from toolplug.parts.sessions.queued_calls import QueuedCalls

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("I17-2-relay")
async def test_a_call_at_one_is_answered_by_the_plugin_of_another_through_a_third(three: Three) -> None:
    here, there, elsewhere = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        task = await calling(session, "a", x=1)
        request = await plugin.next_request()
        assert (request["tool"], request["arguments"], request["attempt"]) == ("a", {"x": 1}, 1)
        answering = await elsewhere.find(session.code)
        await answering.relay.take_answer(str(request["id"]), {"y": 10**30})
        result = await task
        assert (result.status, result.structured) == (ToolStatus.SUCCESS, {"y": 10**30})
        for process in three:
            with pytest.raises(ApiError) as error:
                await (await process.find(session.code)).relay.take_answer(str(request["id"]), "again")
            assert refusal(error) == "already_answered"
            with pytest.raises(ApiError) as error:
                await (await process.find(session.code)).relay.take_answer("req_" + "0" * 24, "never asked")
            assert refusal(error) == "request_not_found"


@pytest.mark.requirement("I17-2-relay")
async def test_a_request_is_sent_after_its_record_is_written(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(session) as plugin:
        with here.store.holding("commit"):
            task = await calling(session, "a")
            session.has_room()  # one of the occasions on which waiting requests are sent
            await turns()
            assert plugin.reader.idle
        request = str((await plugin.next_request())["id"])
        await (await there.find(session.code)).relay.take_answer(request, "done")
        assert (await task).output == "done"


@pytest.mark.requirement("I17-2-relay")
async def test_arguments_and_answers_too_large_for_a_push_arrive(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        with promptly():
            task = await calling(session, "a", x="x" * 5_000)
            await plugin.next_request()
        (request,) = plugin.asked()
        assert request["arguments"] == {"x": "x" * 5_000}
        with promptly():
            await (await there.find(session.code)).relay.take_answer(str(request["id"]), "y" * 5_000)
            assert (await task).output == "y" * 5_000


@pytest.mark.requirement("I17-2-relay")
async def test_an_error_of_the_plugin_is_one_at_the_caller(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        task = await calling(session, "a")
        failed = ToolResult(output="no such table", status=ToolStatus.TOOL_ERROR)
        await (await there.find(session.code)).relay.take_answer(str((await plugin.next_request())["id"]), failed)
        assert ((await task).status, (await task).output) == (ToolStatus.TOOL_ERROR, "no such table")


@pytest.mark.requirement("I17-2-relay")
async def test_progress_reaches_the_caller_in_another_process(three: Three) -> None:
    here, there, elsewhere = three
    session = await new_session(here)
    reported: list[tuple[float, float | None, str | None]] = []
    context = CallContext(Principal(tenant="t1"), report=lambda *progress: reported.append(progress))
    async with attached(await there.find(session.code)) as plugin:
        task = asyncio.create_task(call(session, "a", context=context))
        request = str((await plugin.next_request())["id"])
        relay = (await elsewhere.find(session.code)).relay
        await relay.take_progress(request, RecordedProgress(1, 3, "a third"))
        await turns()
        await relay.take_answer(request, "done")
        assert (await task).output == "done"
        assert reported == [(1, 3, "a third")]
        with pytest.raises(ApiError) as error:
            await relay.take_progress(request, RecordedProgress(2, 3, None))
        assert refusal(error) == "already_answered"


@pytest.mark.requirement("I17-2-relay")
async def test_a_call_that_is_too_late_is_cancelled_at_the_plugin_of_another(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        task = asyncio.create_task(call(session, "a", within_s=5))
        request = str((await plugin.next_request())["id"])
        await pass_time(6)
        assert (await task).status is ToolStatus.TIMEOUT
        assert await plugin.hear_until("tool-cancelled") == {"id": request, "reason": "timeout"}
        with pytest.raises(ApiError) as error:
            await (await there.find(session.code)).relay.take_answer(request, "late")
        assert refusal(error) == "too_late"


@pytest.mark.requirement("I17-2-fresh")
async def test_a_change_is_seen_by_the_next_request_at_any_process(three: Three) -> None:
    here, there, elsewhere = three
    session = await new_session(here)
    other = await there.find(session.code)
    there.store.hold("watch")  # nothing is heard
    await session.update(added("b"), "new")
    assert names(other) == ["a"]
    assert names(await there.find(session.code)) == ["a", "b"]
    async with attached(session):
        assert (await there.find(session.code)).plugin_status == "attached"
    there.store.go("watch")
    assert names(await elsewhere.find(session.code)) == ["a", "b"]
    await here.sessions.end(session, T1)
    for process in three:
        with pytest.raises(SessionGone):
            await process.find(session.code)


@pytest.mark.requirement("I17-2-fresh")
async def test_streams_and_executors_follow_without_being_asked(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    other = await there.find(session.code)
    executor = other.executor
    assert list(executor.catalog) == ["a"]
    await session.update(added("b"), "new")
    await turns()
    assert list(executor.catalog) == ["a", "b"]


@pytest.mark.requirement("I17-2-presence")
async def test_the_status_of_the_plugin_is_the_same_everywhere_and_logged_once(three: Three) -> None:
    here, there, elsewhere = three
    session = await new_session(here)
    sessions = [session, await there.find(session.code), await elsewhere.find(session.code)]

    def statuses() -> list[str]:
        return [one.plugin_status for one in sessions]

    async with listening(session) as client:
        async with attached(sessions[1]):
            await turns()
            assert statuses() == ["attached"] * 3
            async with attached(sessions[2]):
                await turns()
            assert statuses() == ["attached"] * 3
        await turns()
        assert statuses() == ["waiting"] * 3
        assert [listed(one)["a"] for one in sessions] == [(True, None)] * 3
        await pass_time(31)
        assert statuses() == ["detached"] * 3
        assert [listed(one)["a"] for one in sessions] == [(False, "plugin_gone")] * 3
        assert (await call(session, "a")).metadata["code"] == "plugin_gone"
        while not client.reader.idle:
            await client.hear()
        assert [event["status"] for event in client.of("plugin-status")] == ["attached", "detached"]


@pytest.mark.requirement("I17-2-presence")
async def test_the_status_is_logged_by_the_only_process_that_has_the_session(three: Three) -> None:
    here, _, _ = three
    session = await new_session(here)
    async with listening(session) as client:
        here.store.pace["commit"] = (40, 0)  # the status changes before the stream is stored
        async with attached(session):
            assert (await client.hear_until("plugin-status"))["status"] == "attached"


@pytest.mark.requirement("I17-2-presence")
async def test_a_status_is_logged_when_the_store_answers_again(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with listening(session) as client, attached(await there.find(session.code)):
        assert (await client.hear_until("plugin-status"))["status"] == "attached"
    async with listening(session) as client:
        await pass_time(25)
        for process in three:
            process.store.fails = lambda operation: operation == "read"
        await pass_time(10)
        for process in three:
            process.store.fails = lambda _: False
        assert (await client.hear_until("plugin-status"))["status"] == "detached"


@pytest.mark.requirement("I17-2-presence")
async def test_a_session_loaded_later_knows_that_its_plugin_is_gone(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(session):
        pass
    await pass_time(31)
    assert (await there.find(session.code)).plugin_status == "detached"


@pytest.mark.requirement("I17-2-relay")
async def test_the_newest_stream_of_all_processes_gets_the_requests(three: Three) -> None:
    here, there, elsewhere = three
    session = await new_session(here)
    async with attached(session) as old, attached(await there.find(session.code)) as new:
        await turns()
        with promptly():
            task = await calling(session, "a")
            request = await new.next_request()
        await turns()
        while not old.reader.idle:
            await old.hear()
        assert old.asked() == []
        await (await elsewhere.find(session.code)).relay.take_answer(str(request["id"]), 1)
        assert (await task).output == "1"


@pytest.mark.requirement("I17-2-process-ends")
async def test_a_request_moves_to_the_next_stream_in_another_process(three: Three) -> None:
    here, there, elsewhere = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as first:
        task = await calling(session, "a")
        request = await first.next_request()
    async with attached(await elsewhere.find(session.code)) as second:
        with promptly():
            again = await second.next_request()
        assert again == request | {"attempt": 2}
    async with attached(session) as third:  # where its caller waits
        with promptly():
            assert await third.next_request() == request | {"attempt": 3}
        await (await there.find(session.code)).relay.take_answer(str(again["id"]), "moved")
        assert (await task).output == "moved"


@pytest.mark.requirement("I17-2-process-ends", "C-6-attempt-everywhere")
@pytest.mark.parametrize("connects", [0, 1, 2])
async def test_a_request_that_is_sent_again_says_so_whichever_processes_send_it(three: Three, connects: int) -> None:
    here = three[0]
    session = await new_session(here)
    task = await calling(session, "a")  # before there is a stream anywhere
    async with attached(await three[connects].find(session.code)) as first:
        request = await first.next_request()
        assert request["attempt"] == 1
        async with attached(await three[2 - connects].find(session.code)) as newer:
            await turns()
            if connects == 2:  # the process of the caller sends it again, another one waits for the older stream
                assert await newer.next_request() == request | {"attempt": 2}
            other = await calling(session, "a")
            asked = await newer.next_request()
            assert asked["attempt"] == 1
        assert await first.next_request() == asked | {"attempt": 2}
        await session.relay.take_answer(str(asked["id"]), "b")
        await session.relay.take_answer(str(request["id"]), "a")
        assert [(await task).output, (await other).output] == ["a", "b"]


@pytest.mark.requirement("I17-2-relay")
async def test_a_request_that_waits_for_the_plugin_is_sent_where_it_connects(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    task = await calling(session, "a")
    async with attached(await there.find(session.code)) as plugin:
        with promptly():
            request = await plugin.next_request()
        await (await there.find(session.code)).relay.take_answer(str(request["id"]), "at last")
        assert (await task).output == "at last"


@pytest.mark.requirement("I17-2-process-ends")
async def test_the_requests_of_a_process_that_died_are_sent_by_the_next(three: Three) -> None:
    here, there, elsewhere = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as first:
        task = await calling(session, "a")
        request = await first.next_request()
        there.die()
        await pass_time(9)
        assert (await here.find(session.code)).plugin_status == "waiting"
        async with attached(await elsewhere.find(session.code)) as second:
            assert (await second.next_request())["id"] == request["id"]
            await (await elsewhere.find(session.code)).relay.take_answer(str(request["id"]), "alive")
            assert (await task).output == "alive"


@pytest.mark.requirement("I17-2-process-ends")
async def test_an_older_stream_takes_over_when_the_process_of_the_newer_one_dies(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(session) as old, attached(await there.find(session.code)) as new:
        await turns()
        task = await calling(session, "a")
        request = await new.next_request()
        there.die()
        await pass_time(9)
        assert (await old.next_request())["id"] == request["id"]
        await session.relay.take_answer(str(request["id"]), "taken over")
        assert (await task).output == "taken over"


@pytest.mark.requirement("I17-2-process-ends", "H-replicas-dies")
async def test_calls_of_a_process_that_died_are_cancelled_at_the_plugin(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        task = await calling(session, "a")
        request = str((await plugin.next_request())["id"])
        here.die()
        await pass_time(9)
        assert await plugin.hear_until("tool-cancelled") == {"id": request, "reason": "caller_gone"}
        with pytest.raises(ApiError) as error:
            await (await there.find(session.code)).relay.take_answer(request, "late")
        assert refusal(error) == "too_late"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        here.store.down = False


@pytest.mark.requirement("I17-2-lost-hints")
async def test_what_is_not_heard_is_found_by_looking(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        for process in (here, there):
            process.store.hold("watch")
        task = await calling(session, "a")
        await pass_time(2.5)
        request = await plugin.next_request()
        await (await there.find(session.code)).relay.take_answer(str(request["id"]), "found")
        await pass_time(2.5)
        assert (await task).output == "found"
        for process in (here, there):
            process.store.go("watch")


@pytest.mark.requirement("I17-2-lease")
async def test_a_process_whose_lease_has_lapsed_answers_nothing_and_goes_on_under_a_new_name(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(session) as plugin:
        await turns()
        name = here.processes.name
        here.die()
        await pass_time(9)
        with pytest.raises(StoreUnavailable, match="not reached its store"):
            await here.find(session.code)
        assert (await there.find(session.code)).plugin_status == "waiting"
        here.store.down = False
        await pass_time(3)
        assert here.processes.name != name
        other = await there.find(session.code)
        assert (await here.find(session.code)).plugin_status == other.plugin_status == "attached"
        task = await calling(other, "a")
        request = await plugin.next_request()
        await session.relay.take_answer(str(request["id"]), "back")
        assert (await task).output == "back"


@pytest.mark.requirement("I17-2-relay")
async def test_a_store_that_fails_makes_the_tool_unavailable(three: Three) -> None:
    here, _, _ = three
    session = await new_session(here)
    async with attached(session):
        here.store.fails = lambda operation: operation == "commit"
        result = await call(session, "a")
        here.store.fails = lambda _: False
        assert (result.status, result.metadata["code"]) == (ToolStatus.UNAVAILABLE, "store_unavailable")


@pytest.mark.requirement("I17-2-fresh")
async def test_every_process_lists_all_sessions(three: Three) -> None:
    here, there, elsewhere = three
    one, other = await new_session(here), await new_session(there)
    async with attached(one):
        for process in three:
            found = {session.code: session.plugin_status for session in await process.sessions.list_sessions()}
            assert found == {one.code: "attached", other.code: "waiting"}
    assert elsewhere.sessions.live


@pytest.mark.requirement("I17-2-presence")
async def test_an_attached_plugin_keeps_its_session_in_every_process(three: Three) -> None:
    here, there, _ = three
    session = (await here.sessions.create(T1, ttl_s=60)).session
    other = await there.find(session.code)
    async with attached(session):
        await pass_time(300)
        assert await there.find(session.code) is other
        assert other.expires_at > virtual_clock()
    await pass_time(70)
    for process in (here, there):
        with pytest.raises(SessionGone):
            await process.find(session.code)


@pytest.mark.requirement("I17-2-relay")
async def test_more_calls_than_may_wait_are_limited_where_they_are_sent(three: Three) -> None:
    here, there, elsewhere = three
    session = await new_session(here)
    async with attached(await elsewhere.find(session.code)):
        other = await there.find(session.code)
        tasks = [await calling(one, "a") for one in [session] * 60 + [other] * 60]
        await turns(500)
        done = [task for task in tasks if task.done()]
        assert [(await task).metadata["code"] for task in done] == ["limited"] * 20
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def queueing(process: Process) -> QueuedCalls:
    """The queued calls of a process, as a host opens them."""

    def executor_for(principal: Principal, _: str | None, code: str) -> ToolExecutor:
        return process.sessions.known_session(code, principal.tenant).executor

    queue = QueuedCalls(process.store, executor_for, process.processes)
    queue.resume(process.sessions.load)
    return queue


@pytest.mark.requirement("I17-2-process-ends")
@pytest.mark.parametrize("how", ["dies", "stops"])
async def test_a_queued_call_of_a_process_that_ends_is_run_by_another(three: Three, how: str) -> None:
    here, there, elsewhere = three
    queues = [queueing(process) for process in three]
    session = await new_session(here)
    async with attached(await elsewhere.find(session.code)) as plugin:
        deadline = asyncio.get_running_loop().time() + 60
        context = CallContext(Principal(tenant="t1"), deadline=deadline)
        call_id = await queues[0].start(session, ToolCall("c1", "a", {}), context, most=10)
        assert (await plugin.next_request())["id"] == call_id
        states = [
            (await queue.look(await process.find(session.code), call_id)).status
            for queue, process in zip(queues, three, strict=True)
        ]
        assert states == ["sent"] * 3
        if how == "dies":
            here.die()
        else:
            here.sessions.stop()
            await queues[0].aclose()
            await here.processes.__aexit__(None, None, None)
        await pass_time(9)
        await (await there.find(session.code)).relay.take_answer(call_id, "done by another")
        await turns()
        for queue, process in zip(queues[1:], three[1:], strict=True):
            found = await queue.look(await process.find(session.code), call_id)
            assert (found.status, found.result and found.result.output) == ("done", "done by another")
    here.store.down = False
    for queue in queues:
        await queue.aclose()


@pytest.mark.requirement("I17-2-lease")
async def test_a_listener_that_fails_does_not_end_the_lease(three: Three, caplog: pytest.LogCaptureFixture) -> None:
    here, _, _ = three

    async def fail() -> None:
        raise ValueError("on purpose")

    here.processes.listen(fail)
    name = here.processes.name
    await pass_time(20)
    assert here.processes.valid
    assert here.processes.name == name
    assert "on purpose" in caplog.text
