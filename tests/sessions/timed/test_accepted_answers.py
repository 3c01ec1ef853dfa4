"""An answer that a process has accepted is what the caller gets, whatever ends the call at the same moment."""

from __future__ import annotations

import asyncio

import pytest
from tests.sessions.fixtures import attached, call, calling, turns
from tests.sessions.timed.processes import Three, new_session, refusal
from tests.virtual_time import pass_time, virtual_clock

from toolplug.catalog.call import ToolStatus
from toolplug.errors import ApiError

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-accepted")]


@pytest.mark.parametrize("at", [0, 1])
async def test_an_answer_that_was_accepted_before_the_deadline_is_used(three: Three, at: int) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        task = asyncio.create_task(call(session, "a", within_s=5))
        request = str((await plugin.next_request())["id"])
        relay = (await three[at].find(session.code)).relay
        await pass_time(4.9)
        with here.store.holding("watch"), three[at].store.holding("commit reply"):
            answer = asyncio.create_task(relay.take_answer(request, "in time"))
            await pass_time(0.5)
            assert task.done()
        assert ((await task).status, (await task).output) == (ToolStatus.SUCCESS, "in time")
        await answer
        await turns()
        while not plugin.reader.idle:
            await plugin.hear()
        assert plugin.of("tool-cancelled") == []


async def test_an_answer_that_the_deadline_overtakes_is_too_late_for_both(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        task = asyncio.create_task(call(session, "a", within_s=5))
        request = str((await plugin.next_request())["id"])
        with there.store.holding("commit"):
            answer = asyncio.create_task((await there.find(session.code)).relay.take_answer(request, "late"))
            assert (await task).status is ToolStatus.TIMEOUT
        with pytest.raises(ApiError) as error:
            await answer
        assert refusal(error) == "too_late"


async def test_a_store_that_does_not_answer_delays_a_timeout_by_a_quarter_of_a_second(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    async with attached(await there.find(session.code)) as plugin:
        began = virtual_clock()
        task = asyncio.create_task(call(session, "a", within_s=5))
        await plugin.next_request()
        with here.store.holding("commit"):
            assert (await task).status is ToolStatus.TIMEOUT
        assert virtual_clock() - began == pytest.approx(5.25, abs=0.1)


async def test_an_answer_that_was_accepted_before_the_plugin_was_gone_is_used(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    task = await calling(session, "a")
    async with attached(await there.find(session.code)) as plugin:
        request = str((await plugin.next_request())["id"])
    await pass_time(28)
    with here.store.holding("watch"):
        await (await there.find(session.code)).relay.take_answer(request, "in time")
        session.relay.lose("plugin_gone")
        assert (await task).output == "in time"


async def test_the_plugin_is_told_of_a_deadline_that_its_process_hears_of_before_the_store_answers(
    three: Three,
) -> None:
    here, _, _ = three
    session = await new_session(here)
    async with attached(session) as plugin:
        task = asyncio.create_task(call(session, "a", within_s=5))
        request = str((await plugin.next_request())["id"])
        await pass_time(4.9)
        with here.store.holding("commit reply"):
            await pass_time(0.2)
        assert (await task).status is ToolStatus.TIMEOUT
        await turns()
        while not plugin.reader.idle:
            await plugin.hear()
        assert plugin.of("tool-cancelled") == [{"id": request, "reason": "timeout"}]


async def test_a_request_that_has_been_answered_since_a_look_found_it_is_not_sent_again(three: Three) -> None:
    here, there, _ = three
    session = await new_session(here)
    for process in (here, there):
        mine = await process.find(session.code)
        async with attached(mine) as plugin:
            task = asyncio.create_task(call(session, "a", within_s=5))
            request = str((await plugin.next_request())["id"])
            await mine.relay.take_answer(request, "done")
            assert (await task).output == "done"
            assert mine.peer is not None
            await mine.peer.collect([request])
            await turns()
            while not plugin.reader.idle:
                await plugin.hear()
            assert len(plugin.of("tool-request")) == 1
