"""A backend that is not well: what is tried again, what the client is told, and that nothing made is lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from tests.responses.backend.script import Answer, Call, CutOff, Ended, Garbled, Gate, Held, Raw, Refused, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness

from toolplug.parts.responses import openai_backend

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
        assert error["message"] == f"the model's server refused with status {fault.status}"
        assert len(harness.backend.asked) == 1


@pytest.mark.requirement("I6-1-backend-errors")
async def test_a_backend_that_is_not_there_is_an_http_error_and_a_line_of_the_log(
    staging: Staging, caplog: pytest.LogCaptureFixture
) -> None:
    harness = await staging(backend={"base_url": "http://me:hunter2@127.0.0.1:1/v1", "retries": 0})
    answer = await harness.post(model=MODEL, input="Hi")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_unreachable")
    assert "127.0.0.1" not in answer.text
    place, said = [record.getMessage() for record in caplog.records if record.name == "toolplug.responses"]
    assert place.startswith("no connection to http://127.0.0.1:1: ")
    assert said == "the model's server gave no answer: backend_unreachable"


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


@pytest.mark.requirement("I6-1-backend-errors", "C-9-backend-bounded")
@pytest.mark.parametrize("stream", [False, True])
async def test_the_words_of_the_backend_go_to_the_log_and_callers_get_the_status(
    harness: Harness, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    words = {"error": {"message": "wrong key backend-key of org-INTERNAL"}}
    harness.backend.plays(Raw(piece=json.dumps(words).encode(), status=401))
    answer = await harness.post(model=MODEL, input="Hi", stream=stream)
    assert "INTERNAL" not in answer.text
    assert "the model's server refused with status 401" in answer.text
    assert "wrong key *** of org-INTERNAL" in caplog.text
    assert "backend-key" not in caplog.text


@pytest.mark.requirement("C-9-backend-bounded")
async def test_an_error_in_the_middle_of_a_stream_is_told_without_its_words(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.backend.plays(Raw(piece=b'data: {"error": {"message": "org-INTERNAL is out of credit"}}\n\n'))
    answer = await harness.post(model=MODEL, input="Hi", stream=True)
    assert (_ending(answer), "INTERNAL" in answer.text) == ("backend_error", False)
    assert "org-INTERNAL is out of credit" in caplog.text


def _ending(answer: httpx2.Response) -> str:
    """The code of the error that a stream ends with, before `[DONE]`; of an answer that is none, its own."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.json()["error"]["code"]
    *_, final, done, last = answer.text.split("\n\n")
    assert (done, last) == ("data: [DONE]", "")
    event = json.loads(final.partition("data: ")[2])
    assert event["type"] == "response.failed"
    return event["response"]["error"]["code"]


_CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}]}\n\n' % (b"x" * 65536)


@pytest.mark.requirement("C-9-backend-bounded")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "endless",
    [
        Raw(piece=b'{"a": "' + b"x" * 65536, times=None),
        Raw(piece=b"x" * 65536, times=None),
        Raw(piece=_CHUNK, times=None),
        Raw(piece=b"x" * 65536, times=None, status=400),
        Raw(piece=b"x" * 65536, times=None, status=302, headers={"location": "/v1/elsewhere"}),
        Raw(piece=b"\x1f\x8b", headers={"content-encoding": "gzip"}),
    ],
)
async def test_an_answer_without_end_is_read_up_to_the_limit_and_asked_for_once(
    harness: Harness, endless: Raw, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert openai_backend.MAX_ANSWER_BYTES == 16 * 1024 * 1024
    monkeypatch.setattr(openai_backend, "MAX_ANSWER_BYTES", 1024 * 1024)
    harness.backend.plays(replace(endless, left=asyncio.Event()))
    answer = await harness.post(model=MODEL, input="Hi", stream=stream)
    assert _ending(answer) == "backend_garbage"
    assert len(answer.content) < 6 * 1024 * 1024
    assert len(harness.backend.asked) == 1


@pytest.mark.requirement("C-9-backend-bounded")
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_drips_ends_at_the_deadline(staging: Staging, stream: bool) -> None:
    harness = await staging(backend={"deadline": "500ms", "timeout": "30s"})
    drip = Raw(piece=b": wait\n\n" if stream else b" ", times=None, pause_s=0.01)
    harness.backend.plays(drip)
    answer = await harness.post(model=MODEL, input="Hi", stream=stream)
    assert _ending(answer) == "backend_timeout"
    assert "was not done within 0.5 s" in answer.text
    await drip.left.wait()


@pytest.mark.requirement("C-9-backend-bounded", "I6-bad-garbage")
@pytest.mark.parametrize(
    "chunk",
    [
        b"[" * 50_000,
        b'{"choices": [{"delta": ' + b'{"a":' * 50_000,
        b"1" * 5_000,
        b'"\xff"',
        b"[]",
        b"null",
        b'{"choices": 3}',
        b'{"choices": [{"delta": {"content": 3}}]}',
        b'{"choices": [{"delta": {"tool_calls": 3}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": "a"}]}}]}',
    ],
)
async def test_a_chunk_that_cannot_be_read_ends_the_stream_as_failed(harness: Harness, chunk: bytes) -> None:
    harness.backend.plays(Raw(piece=b"data: " + chunk + b"\n\n"))
    assert _ending(await harness.post(model=MODEL, input="Hi", stream=True)) == "backend_garbage"


@pytest.mark.requirement("C-9-backend-bounded")
async def test_counts_that_are_no_counts_are_none(harness: Harness) -> None:
    usage = b'{"prompt_tokens": %b, "completion_tokens": -1}' % (b"9" * 400)
    said = b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": %b}' % usage
    harness.backend.plays(Raw(piece=said))
    answer = await harness.create()
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (0, 0)


@pytest.mark.requirement("I6-bad-garbage")
async def test_the_next_response_is_answered(harness: Harness) -> None:
    harness.backend.plays(Garbled(turn=HELLO, after=3), HELLO)
    await harness.stream()
    assert (await harness.create()).output_text == "Hello, otter!"
