"""Answers as other servers than OpenAI's send them, through a served host; `answers/` has one of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.responses.backend.script import Raw, says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ANSWERS = Path(__file__).parent / "answers"

RAN = {
    "index-null.sse": ["note a"],
    "one-index-empty-ids.sse": ["note a", "note b"],
    "name-in-every-delta.sse": ["note a"],
    "tail-under-another-index.sse": ["note a", "note b"],
    "one-call-at-two-indexes.sse": ["note a"],
    "no-finish-reason.sse": ["note a"],
    "arguments-as-object.json": ["note a"],
    "thought-signature.json": ["note a"],
    "reasoning-details.json": ["note a"],
}


def sent(name: str) -> Raw:
    """The answer in a file."""
    return Raw(piece=(ANSWERS / name).read_bytes())


async def _response(harness: Harness, stream: bool, **body: Any) -> dict[str, Any]:
    if stream:
        return (await harness.stream(**body))[-1].response.to_dict()  # type: ignore[union-attr]
    return (await harness.post(model=MODEL, **{"input": "Hi", **body})).json()


@pytest.mark.requirement("C-9-fragments")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("name", "ran"), RAN.items(), ids=RAN)
async def test_each_call_runs_once_with_its_arguments(
    harness: Harness, name: str, ran: list[str], stream: bool
) -> None:
    harness.backend.plays(sent(name), says("done"))
    answer = await _response(harness, stream)
    assert (answer["status"], sorted(harness.board.log)) == ("completed", ran)
    assert answer["output"][-1]["content"][0]["text"] == "done"


@pytest.mark.requirement("C-9-lenient")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["content-as-parts.json", "usage-without-choices.sse", "message-instead-of-delta.sse"])
async def test_each_text_is_read(harness: Harness, name: str, stream: bool) -> None:
    harness.backend.plays(sent(name))
    answer = await _response(harness, stream)
    assert (answer["status"], answer["output"][-1]["content"][0]["text"]) == ("completed", "hi")
    if name == "usage-without-choices.sse":
        assert answer["usage"]["total_tokens"] == 4


@pytest.mark.requirement("C-9-backend-words")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["error-with-200.json", "event-error.sse"])
async def test_each_error_ends_as_one_and_its_words_are_in_the_log_alone(
    harness: Harness, name: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    harness.backend.plays(sent(name))
    answer = await harness.post(model=MODEL, input="Hi", stream=stream)
    assert "backend_error" in answer.text
    assert "WORDS" not in answer.text
    assert "WORDS" in caplog.text


@pytest.mark.requirement("C-9-backend-words")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [200, 401, 500])
async def test_words_of_a_page_of_any_status_are_in_the_log_alone(
    harness: Harness, status: int, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    page = b"<!DOCTYPE html><title>WORDS for backend-key</title>" + b"<p>" * 1000
    headers = {"content-type": "text/html", "retry-after-ms": "1"}
    harness.backend.plays_for_ever(Raw(piece=page, status=status, headers=headers))
    answer = await harness.post(model=MODEL, input="Hi", stream=stream)
    assert ("backend_refused" if status == 401 else "backend_error") in answer.text
    assert "WORDS" not in answer.text
    assert "WORDS for ***" in caplog.text


@pytest.mark.requirement("C-9-as-sent")
@pytest.mark.parametrize("way", ["loop", "previous", "items"])
@pytest.mark.parametrize("name", ["thought-signature.json", "reasoning-details.json"])
async def test_what_a_server_wants_back_goes_back(harness: Harness, name: str, way: str) -> None:
    harness.backend.plays(sent(name), says("done"), says("again"))
    first = await _response(harness, False)
    user = {"role": "user", "content": "And?"}
    if way == "previous":
        await _response(harness, False, previous_response_id=first["id"], input=[user])
    if way == "items":
        await harness.create([{"role": "user", "content": "Hi"}, *first["output"], user])
    if way == "loop":
        await harness.create()
    message = next(
        each for each in harness.backend.asked[1 if way == "loop" else 2].messages if each["role"] == "assistant"
    )
    if name == "thought-signature.json":
        assert message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "SIG-123"}}
    else:
        assert (message["reasoning"], message["reasoning_details"][0]["data"]) == ("hm", "XYZ")
        assert "reasoning_content" not in message
