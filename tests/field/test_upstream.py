"""Answers of model servers that are not OpenAI's own, through a served host, as they came and as streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.field.conftest import INPUTS, NotesHost

pytestmark = pytest.mark.judge

RAN = {
    "F1-index-null.sse": ["a"],
    "F2-one-index-empty-ids.sse": ["a", "b"],
    "F3-name-in-every-delta.sse": ["a"],
    "F4-tail-under-another-index.sse": ["a", "b"],
    "F5-one-call-at-two-indexes.sse": ["a"],
    "F8-thought-signature.json": ["a"],
    "F9-reasoning-details.json": ["a"],
    "F11-no-finish-reason.sse": ["a"],
    "F13-arguments-as-object.json": ["a"],
}
"""Answers with calls → the texts that `note` has to be called with."""

TEXTS = ["F6-content-as-parts.json", "F7-usage-without-choices.sse", "F12-message-instead-of-delta.sse"]
"""Answers whose text is `hi`."""

ERRORS = {"F12-event-error.sse": "UPSTREAM-WORDS: overloaded", "F12-error-with-200.json": "UPSTREAM-WORDS: quota"}
"""Answers that are errors → what the model's server says."""

SENT_BACK = {
    "F8-thought-signature.json": {"extra_content": {"google": {"thought_signature": "SIG-123"}}},
    "F9-reasoning-details.json": {
        "reasoning": "hm",
        "reasoning_details": [
            {"type": "reasoning.encrypted", "data": "XYZ", "id": "r1", "format": "x", "index": 0},
        ],
    },
}
"""Answers with fields of their own → those fields, of the call or of the message."""

FILES = {*RAN, *TEXTS, *ERRORS, *SENT_BACK}


def ways(*names: str) -> list[Any]:
    """Name, bytes and whether a stream is asked for: `.sse` as it came, `.json` as it came and as a stream."""
    found = []
    for name in names:
        content = INPUTS.joinpath("upstream", name).read_bytes()
        if name.endswith(".sse"):
            found.append(pytest.param(name, content, True, id=name))
        else:
            found.append(pytest.param(name, content, False, id=name))
            found.append(pytest.param(name, as_stream(json.loads(content)), True, id=f"{name}-streamed"))
    return found


def as_stream(answer: Mapping[str, Any]) -> bytes:
    """The same answer in one chunk, its message as the delta; an error as it is."""
    if "choices" in answer:
        message, finish = answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]
        calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", ()))]
        delta = {**message, "tool_calls": calls} if calls else message
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        answer = {**answer, "object": "chat.completion.chunk", "choices": choices}
    return f"data: {json.dumps(answer)}\n\ndata: [DONE]\n\n".encode()


@pytest.mark.requirement("C-9-fragments")
@pytest.mark.parametrize(("name", "answer", "stream"), ways(*RAN))
def test_each_call_runs_once_with_its_own_arguments(
    notes_host: NotesHost, name: str, answer: bytes, stream: bool
) -> None:
    notes_host.replay(answer)
    response = notes_host.response(stream=stream)
    assert (response["status"], notes_host.notes()) == ("completed", RAN[name])
    assert response["output"][-1]["content"][0]["text"] == "done"
    messages = notes_host.backend.asked[1].messages
    made = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert made == answered
    assert all(made)
    assert len(set(made)) == len(RAN[name])


@pytest.mark.requirement("C-9-lenient")
@pytest.mark.parametrize(("name", "answer", "stream"), ways(*TEXTS))
def test_each_text_is_read(notes_host: NotesHost, name: str, answer: bytes, stream: bool) -> None:
    notes_host.replay(answer)
    response = notes_host.response(stream=stream)
    assert (response["status"], response["output"][-1]["content"][0]["text"]) == ("completed", "hi")
    if name.startswith("F6"):
        assert response["output"][0]["type"] == "reasoning"
        assert '"hm"' in json.dumps(response["output"][0])
    if name.startswith("F7"):
        assert response["usage"]["total_tokens"] == 4


@pytest.mark.requirement("C-9-lenient")
def test_usage_is_read_where_choices_are_absent(notes_host: NotesHost) -> None:
    answer = INPUTS.joinpath("upstream", "F7-usage-without-choices.sse").read_bytes()
    assert b'"choices": null, ' in answer
    notes_host.replay(answer.replace(b'"choices": null, ', b""))
    response = notes_host.response(stream=True)
    assert (response["status"], response["usage"]["total_tokens"]) == ("completed", 4)


@pytest.mark.requirement("C-9-lenient")
def test_a_text_without_a_finish_reason_is_complete_at_the_end(notes_host: NotesHost) -> None:
    chunks = INPUTS.joinpath("upstream", "F7-usage-without-choices.sse").read_bytes().split(b"\n\n")
    notes_host.replay(b"\n\n".join((chunks[0], b"data: [DONE]", b"")))
    response = notes_host.response(stream=True)
    assert (response["status"], response["output"][-1]["content"][0]["text"]) == ("completed", "hi")


@pytest.mark.requirement("C-9-backend-words")
@pytest.mark.parametrize(("name", "answer", "stream"), ways(*ERRORS))
def test_the_words_of_an_error_are_in_the_log_alone(
    notes_host: NotesHost, name: str, answer: bytes, stream: bool
) -> None:
    notes_host.replay(answer)
    notes_host.new_lines()
    answered = notes_host.create(stream=stream).text
    assert "backend_error" in answered
    assert "UPSTREAM-WORDS" not in answered
    assert any(ERRORS[name] in line for line in notes_host.new_lines())


@pytest.mark.requirement("C-9-as-sent")
@pytest.mark.parametrize("way", ["the same response", "previous_response_id", "items"])
@pytest.mark.parametrize(("name", "answer", "stream"), ways(*SENT_BACK))
def test_fields_of_a_model_server_go_back_to_it(
    notes_host: NotesHost, name: str, answer: bytes, stream: bool, way: str
) -> None:
    notes_host.replay(answer)
    first = notes_host.response(stream=stream)
    user = {"role": "user", "content": "And?"}
    if way == "previous_response_id":
        notes_host.response(stream=stream, previous_response_id=first["id"], input=[user])
    if way == "items":
        notes_host.response(stream=stream, input=[{"role": "user", "content": "hello"}, *first["output"], user])
    message = next(each for each in notes_host.backend.asked[-1].messages if each["role"] == "assistant")
    holder = message["tool_calls"][0] if name.startswith("F8") else message
    assert {key: holder.get(key) for key in SENT_BACK[name]} == SENT_BACK[name]
    assert "reasoning_content" not in message


@pytest.mark.requirement("C-9-as-sent")
@pytest.mark.parametrize("stream", [False, True])
def test_each_of_two_calls_goes_back_with_its_own_fields(notes_host: NotesHost, stream: bool) -> None:
    answer = json.loads(INPUTS.joinpath("upstream", "F8-thought-signature.json").read_bytes())
    calls = answer["choices"][0]["message"]["tool_calls"]
    calls.append({"id": "c2", "type": "function", "function": {"name": "note", "arguments": '{"text": "b"}'}})
    notes_host.replay(as_stream(answer) if stream else json.dumps(answer).encode())
    notes_host.response(stream=stream)
    sent = next(each for each in notes_host.backend.asked[1].messages if each["role"] == "assistant")["tool_calls"]
    assert [(call["id"], call.get("extra_content")) for call in sent] == [
        ("c1", calls[0]["extra_content"]),
        ("c2", None),
    ]
