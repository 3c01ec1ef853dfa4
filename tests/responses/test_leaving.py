"""A client that leaves: the call is cancelled, the backend is let go, the response is stored as cancelled."""

from __future__ import annotations

import asyncio

import pytest
from openai.types.responses import Response
from tests.responses.backend.script import Call, Gate, Held, calls, says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process]

WAIT = calls(Call("add", '{"a": 1, "b": 2}', "call_add"), Call("wait", '{"gate": "a"}', "call_wait"))


async def over(harness: Harness, response_id: str) -> Response:
    """The stored response, once it is over."""
    while True:
        answer = await harness.client.responses.retrieve(response_id)
        if answer.status not in ("queued", "in_progress"):
            return answer


@pytest.mark.requirement("I6-bad-disconnect")
async def test_who_leaves_a_stream_cancels_its_call_and_finds_the_response_cancelled(harness: Harness) -> None:
    harness.backend.plays(WAIT)
    stream = await harness.client.responses.create(model=MODEL, input="Go", stream=True)
    opening = await anext(stream)
    assert opening.type == "response.created"
    await harness.board.reached["a"].wait()
    await stream.close()
    while "cancelled a" not in harness.board.log:
        await asyncio.sleep(0)
    answer = await over(harness, opening.response.id)
    assert answer.status == "cancelled"
    assert next(getattr(item, "call_id", None) for item in answer.output) == "call_add"


@pytest.mark.requirement("I6-bad-disconnect")
async def test_who_leaves_a_plain_request_cancels_its_call(harness: Harness) -> None:
    harness.backend.plays(WAIT)
    asking = asyncio.create_task(harness.create())
    await harness.board.reached["a"].wait()
    asking.cancel()
    while "cancelled a" not in harness.board.log:
        await asyncio.sleep(0)


@pytest.mark.requirement("I6-bad-disconnect")
@pytest.mark.parametrize("after", [0, 2])
async def test_the_backend_is_let_go_too(harness: Harness, after: int) -> None:
    gate = Gate()
    harness.backend.plays(Held(turn=says("Hello"), gate=gate, after=after))
    stream = await harness.client.responses.create(model=MODEL, input="Go", stream=True)
    opening = await anext(stream)
    assert opening.type == "response.created"
    await gate.reached.wait()
    await stream.close()
    await gate.left.wait()
    assert (await over(harness, opening.response.id)).status == "cancelled"


@pytest.mark.requirement("I6-bad-disconnect")
async def test_nobody_else_notices(harness: Harness) -> None:
    gate = Gate()
    harness.backend.plays(Held(turn=says("Hello"), gate=gate), says("Here I am."))
    asking = asyncio.create_task(harness.create())
    await gate.reached.wait()
    asking.cancel()
    await gate.left.wait()
    assert (await harness.create()).output_text == "Here I am."
