"""Responses in the background that are streamed: heard while they are made, left, taken up again, and heard again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseStreamEvent
from tests.http.conftest import BOB
from tests.responses.backend.script import Call, Gate, Held, calls, says
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.harness import MODEL, Harness, opened_harness
from tests.responses.serving import serving

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I6-2-background", "I6-2-streaming")]

WAIT = calls(Call("wait", '{"gate": "a"}', "call_wait"))


@pytest.fixture
async def listener(harness: Harness) -> AsyncIterator[AsyncOpenAI]:
    """A client whose streams are not judged: one that goes on does not begin with the first event."""
    async with AsyncOpenAI(base_url=f"{harness.url}/v1", api_key="alice-key", max_retries=0) as client:
        yield client


async def heard(client: AsyncOpenAI, response: str, **asked: Any) -> list[ResponseStreamEvent]:
    return [event async for event in await client.responses.retrieve(response, stream=True, **asked)]


def id_of(events: list[ResponseStreamEvent]) -> str:
    assert events[0].type == "response.created"
    return events[0].response.id


async def test_a_background_response_is_streamed_from_its_creation_to_its_end(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    events = await harness.stream(background=True)
    assert [event.type for event in events] == [
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    states = [event.response.status for event in events if hasattr(event, "response")]
    assert states == ["queued", "queued", "in_progress", "completed"]
    assert (await harness.client.responses.retrieve(id_of(events))).output_text == "Hello"


async def test_a_client_that_hangs_up_ends_nothing_and_may_go_on_where_it_was(
    harness: Harness, listener: AsyncOpenAI
) -> None:
    harness.backend.plays(WAIT, says("Done."))
    stream = await listener.responses.create(model=MODEL, input="Go", background=True, stream=True)
    before = [await anext(stream) for _ in range(4)]
    await harness.board.reached["a"].wait()
    await stream.close()
    harness.board.open("a")
    after = await heard(listener, id_of(before), starting_after=before[-1].sequence_number)
    assert [event.sequence_number for event in after] == list(range(4, 4 + len(after)))
    assert after[-1].type == "response.completed"
    assert after[-1].response.output_text == "Done."
    assert harness.board.log == ["began a", "ended a"]


async def test_what_was_told_is_told_again_to_the_letter(harness: Harness, listener: AsyncOpenAI) -> None:
    harness.backend.plays(says("Hello"))
    first = await harness.stream(background=True)
    assert await heard(harness.client, id_of(first)) == first
    assert await heard(listener, id_of(first), starting_after=4) == first[5:]
    assert await heard(listener, id_of(first), starting_after=99) == []


async def test_the_stream_helper_of_the_openai_client_takes_a_response_up(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    first = await harness.stream(background=True)
    async with harness.client.responses.stream(response_id=id_of(first), starting_after=6) as stream:
        numbers = [event.sequence_number async for event in stream]
    assert numbers == [7, 8, 9, 10]
    assert (await stream.get_final_response()).output_text == "Hello"


async def test_who_listens_hears_that_a_response_was_cancelled(harness: Harness) -> None:
    harness.backend.plays(WAIT)
    stream = await harness.client.responses.create(model=MODEL, input="Go", background=True, stream=True)
    begun = await anext(stream)
    await harness.board.reached["a"].wait()
    assert begun.type == "response.created"
    assert (await harness.client.responses.cancel(begun.response.id)).status == "cancelled"
    events = [event async for event in stream]
    assert [event.type for event in events[-3:]] == [
        "response.mcp_call.failed",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.status == "cancelled"
    assert (await heard(harness.client, begun.response.id))[1:] == events


async def test_another_process_tells_of_it_when_it_has_ended(desk_package: None, tmp_path: Path) -> None:
    sections = {"store": f"sqlite:///{tmp_path / 'state.db'}"}
    backend, gate = ScriptedBackend(), Gate()
    backend.plays(Held(turn=says("Hello"), gate=gate, after=1))
    async with AsyncExitStack() as opened:
        reached = {"base_url": f"{await opened.enter_async_context(serving(backend))}/v1"}
        maker = await opened.enter_async_context(opened_harness(backend, reached, "maker", sections))
        other = await opened.enter_async_context(opened_harness(backend, reached, "other", sections))
        stream = await maker.client.responses.create(model=MODEL, input="Go", background=True, stream=True)
        begun = await anext(stream)
        await gate.reached.wait()
        gate.go.set()
        assert begun.type == "response.created"
        elsewhere = await heard(other.client, begun.response.id)
        assert elsewhere == [begun, *[event async for event in stream]]


@pytest.mark.requirement("I6-bad-requests")
async def test_only_what_was_made_to_be_heard_can_be(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Hello"))
    for answer in (await harness.create(), await harness.create(background=True)):
        with pytest.raises(openai.BadRequestError) as refused:
            await heard(harness.client, answer.id)
        assert refused.value.param == "stream"
        assert (await harness.client.responses.retrieve(answer.id, stream=False)).id == answer.id


@pytest.mark.requirement("I6-bad-requests", "I6-2-tenant")
async def test_who_may_not_read_a_response_may_not_listen(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    path = f"/v1/responses/{id_of(await harness.stream(background=True))}?stream=true"
    assert (await harness.http.get(path, headers=BOB)).status_code == 404
    for query, param in (("starting_after=x", "starting_after"), ("starting_after=-1", "starting_after")):
        refused = await harness.http.get(f"{path}&{query}")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    wrong = await harness.http.get(path.replace("true", "perhaps"))
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "stream")
    await harness.http.delete(path.partition("?")[0])
    assert (await harness.http.get(path)).status_code == 404


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_what_another_process_has_stopped_does_not_come_back(
    desk_package: None, tmp_path: Path, how: str
) -> None:
    sections = {"store": f"sqlite:///{tmp_path / 'state.db'}"}
    backend = ScriptedBackend()
    backend.plays(WAIT, says("Never heard."))
    async with AsyncExitStack() as opened:
        reached = {"base_url": f"{await opened.enter_async_context(serving(backend))}/v1"}
        maker = await opened.enter_async_context(opened_harness(backend, reached, "maker", sections))
        other = await opened.enter_async_context(opened_harness(backend, reached, "other", sections))
        listener = await opened.enter_async_context(AsyncOpenAI(base_url=f"{maker.url}/v1", api_key="alice-key"))
        stream = await listener.responses.create(model=MODEL, input="Go", background=True, stream=True)
        begun = await anext(stream)
        await maker.board.reached["a"].wait()
        assert begun.type == "response.created"
        await getattr(other.client.responses, how)(begun.response.id)
        maker.board.open("a")
        last = [event async for event in stream][-1]
        if how == "cancel":
            assert last.type == "response.incomplete"
            assert (await maker.client.responses.retrieve(begun.response.id)).status == "cancelled"
        else:
            with pytest.raises(openai.NotFoundError):
                await maker.client.responses.retrieve(begun.response.id)
    assert len(backend.asked) == 1
