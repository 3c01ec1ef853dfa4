"""Responses in the background: queued, polled, cancelled."""

from __future__ import annotations

import asyncio

import openai
import pytest
from openai.types.responses import Response
from tests.responses.backend.script import Call, Gate, Held, Refused, calls, says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process]

WAIT = calls(Call("wait", '{"gate": "a"}', "call_wait"))


async def polled(harness: Harness, response_id: str) -> Response:
    """The response when it is over."""
    while True:
        answer = await harness.client.responses.retrieve(response_id)
        if answer.status not in ("queued", "in_progress"):
            return answer


@pytest.mark.requirement("I6-2-background")
async def test_a_background_response_is_queued_at_once_and_polled(harness: Harness) -> None:
    gate = Gate()
    harness.backend.plays(Held(turn=says("Hello"), gate=gate))
    answer = await harness.create(background=True)
    assert (answer.status, answer.background, answer.output) == ("queued", True, [])
    await gate.reached.wait()
    assert (await harness.client.responses.retrieve(answer.id)).status == "in_progress"
    gate.go.set()
    done = await polled(harness, answer.id)
    assert (done.status, done.output_text) == ("completed", "Hello")


@pytest.mark.requirement("I6-2-background")
async def test_a_background_response_may_be_cancelled(harness: Harness) -> None:
    harness.backend.plays(WAIT)
    answer = await harness.create(background=True)
    await harness.board.reached["a"].wait()
    cancelled = await harness.client.responses.cancel(answer.id)
    assert cancelled.status == "cancelled"
    assert (await harness.client.responses.retrieve(answer.id)).status == "cancelled"
    assert harness.board.log == ["began a", "cancelled a"]
    assert (await harness.client.responses.cancel(answer.id)).status == "cancelled"


@pytest.mark.requirement("I6-2-background")
async def test_a_response_that_is_over_keeps_its_end_when_it_is_cancelled(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    answer = await harness.create(background=True)
    await polled(harness, answer.id)
    assert (await harness.client.responses.cancel(answer.id)).status == "completed"


@pytest.mark.requirement("I6-2-background")
async def test_only_a_background_response_is_cancelled(harness: Harness) -> None:
    harness.backend.plays(says("Hello"))
    answer = await harness.create()
    with pytest.raises(openai.ConflictError) as refused:
        await harness.client.responses.cancel(answer.id)
    assert refused.value.code == "not_background"


@pytest.mark.requirement("I6-2-background", "I6-1-backend-errors")
async def test_a_background_response_whose_backend_fails_is_failed(harness: Harness) -> None:
    harness.backend.plays(Refused(status=400, message="no such model"))
    done = await polled(harness, (await harness.create(background=True)).id)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.code == "backend_refused"


@pytest.mark.requirement("I6-2-background", "I6-bad-requests")
async def test_a_background_response_is_stored(harness: Harness) -> None:
    answer = await harness.post(model=MODEL, input="Go", background=True, store=False)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "store")


@pytest.mark.requirement("I6-2-background")
async def test_a_deleted_background_response_does_not_come_back(harness: Harness) -> None:
    harness.backend.plays(WAIT, says("Done."))
    answer = await harness.create(background=True)
    await harness.board.reached["a"].wait()
    await harness.client.responses.delete(answer.id)
    harness.board.open("a")
    for _ in range(50):
        await asyncio.sleep(0)
    with pytest.raises(openai.NotFoundError):
        await harness.client.responses.retrieve(answer.id)
