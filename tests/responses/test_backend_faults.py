"""A backend that is not well: what is tried again, what the client is told, and that nothing made is lost."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from tests.responses.backend.script import Answer, Call, CutOff, Ended, Garbled, Gate, Held, Refused, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ADD = calls(Call("add", '{"a": 1, "b": 2}'))
SOON = {"Retry-After-Ms": "1"}
HELLO = says("Hello, otter!")


@pytest.mark.requirement("I6-1-retries")
@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_that_is_busy_is_asked_again(harness: Harness, status: int, stream: bool) -> None:
    harness.backend.plays(Refused(status=status, headers=SOON), Refused(status=status, headers=SOON), HELLO)
    if stream:
        assert (await harness.stream())[-1].type == "response.completed"
    else:
        assert (await harness.create()).output_text == "Hello, otter!"
    assert len(harness.backend.asked) == 3


@pytest.mark.requirement("I6-1-retries", "I6-1-backend-errors")
async def test_a_backend_that_stays_busy_is_given_up(harness: Harness) -> None:
    harness.backend.plays_for_ever(Refused(status=429, headers={"Retry-After": "1", **SOON}))
    answer = await harness.post(model=MODEL, input="Hi")
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (429, "too_many_requests", "rate_limit_exceeded")
    assert "retry-after" in answer.headers
    assert len(harness.backend.asked) == 3


@pytest.mark.requirement("I6-1-backend-errors")
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Refused(status=500, headers=SOON), "backend_error"),
        (Refused(status=400, message="no such model"), "backend_refused"),
        (Refused(status=401, message="wrong key"), "backend_refused"),
        (Refused(status=404, message="nothing here"), "backend_refused"),
        (CutOff(turn=HELLO), "backend_broke_off"),
    ],
)
async def test_a_fault_before_any_output_is_an_http_error(harness: Harness, fault: Answer, code: str) -> None:
    harness.backend.plays_for_ever(fault)
    answer = await harness.post(model=MODEL, input="Hi")
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (502, "model_error")
    assert error["code"] in (code, "backend_unreachable")
    if isinstance(fault, Refused) and fault.status in (400, 404):
        assert fault.message in error["message"]
        assert len(harness.backend.asked) == 1


@pytest.mark.requirement("I6-1-backend-errors")
async def test_a_backend_that_is_not_there_is_an_http_error_and_a_line_of_the_log(
    staging: Staging, caplog: pytest.LogCaptureFixture
) -> None:
    harness = await staging(backend={"base_url": "http://127.0.0.1:1/v1", "retries": 0})
    answer = await harness.post(model=MODEL, input="Hi")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_unreachable")
    said = [record.getMessage() for record in caplog.records if record.name == "toolplug.responses"]
    assert said == ["the model's server gave no answer: backend_unreachable"]


@pytest.mark.requirement("I6-1-backend-errors")
async def test_a_backend_that_never_answers_is_given_up(staging: Staging) -> None:
    harness = await staging(backend={"timeout": "500ms", "retries": 0})
    gate = Gate()
    harness.backend.plays(Held(turn=HELLO, gate=gate))
    answer = await harness.post(model=MODEL, input="Hi")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_timeout")
    await gate.left.wait()


@pytest.mark.requirement("I6-bad-garbage")
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Garbled(turn=HELLO, after=3), "backend_garbage"),
        (CutOff(turn=HELLO, after=3), "backend_broke_off"),
        (Ended(turn=HELLO, after=3), "backend_broke_off"),
        (Garbled(turn=HELLO), "backend_garbage"),
    ],
)
async def test_a_stream_that_goes_wrong_ends_as_failed(harness: Harness, fault: Any, code: str) -> None:
    harness.backend.plays(fault)
    final = (await harness.stream())[-1]
    assert final.type == "response.failed"
    assert final.response.error is not None
    assert final.response.error.code == code
    got = await harness.client.responses.retrieve(final.response.id)
    assert got.status == "failed"
    if fault.after:
        (message,) = got.output
        assert message.type == "message"
        assert message.status == "incomplete"
        assert got.output_text in ("Hell", "Hello, o", "Hello, ot")


@pytest.mark.requirement("I6-bad-garbage")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_fault_after_a_call_has_run_keeps_what_was_made(harness: Harness, stream: bool) -> None:
    harness.backend.plays(ADD, Refused(status=400, message="too long"))
    if stream:
        final = (await harness.stream())[-1]
        assert final.type == "response.failed"
        answer = final.response
    else:
        answer = await harness.create()
    assert answer.status == "failed"
    assert answer.error is not None
    assert (answer.error.code, [item.type for item in answer.output]) == ("backend_refused", ["mcp_call"])
    assert (await harness.client.responses.retrieve(answer.id)).status == "failed"


@pytest.mark.requirement("I6-1-retries")
async def test_a_stream_is_not_asked_for_again_once_something_of_it_was_sent_on(harness: Harness) -> None:
    harness.backend.plays(CutOff(turn=HELLO, after=3))
    await harness.stream()
    assert len(harness.backend.asked) == 1


@pytest.mark.requirement("I6-bad-garbage")
async def test_a_call_whose_arguments_broke_off_does_not_run(harness: Harness) -> None:
    harness.backend.plays(CutOff(turn=ADD, after=3))
    final = (await harness.stream())[-1]
    assert final.type == "response.failed"
    assert harness.board.log == []


@pytest.mark.requirement("I6-1-backend-errors")
async def test_the_key_of_the_backend_is_in_no_answer(harness: Harness) -> None:
    harness.backend.plays(Refused(status=401, message="wrong key backend-key"))
    with pytest.raises(openai.APIStatusError) as refused:
        await harness.create()
    assert "backend-key" not in str(refused.value.body)


@pytest.mark.requirement("I6-bad-garbage")
async def test_the_next_response_is_answered(harness: Harness) -> None:
    harness.backend.plays(Garbled(turn=HELLO, after=3), HELLO)
    await harness.stream()
    assert (await harness.create()).output_text == "Hello, otter!"
