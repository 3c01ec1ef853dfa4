"""Assistant turns go back to the model's server with every field that it sent, on each way that they can take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.responses.judges.published import check_item
from tests.responses.library.raw_model import DONE, Made, answer, chunk, fragment, whole

pytestmark = pytest.mark.anyio

A, B = '{"text": "a"}', '{"text": "b"}'
SIGNED = {"google": {"thought_signature": "SIG-1"}}
DETAILS = [{"type": "reasoning.encrypted", "data": "XYZ", "id": "r1", "format": "x", "index": 0, "signature": None}]
NOTE = {"type": "function", "name": "note"}


def call(call_id: str, arguments: str, **extra: object) -> dict[str, object]:
    """A call as a whole answer has it."""
    return {"id": call_id, "type": "function", "function": {"name": "note", "arguments": arguments}, **extra}


def message(*calls: Mapping[str, object], **fields: object) -> dict[str, object]:
    """An assistant message with these calls."""
    return {"role": "assistant", "content": None, **fields, **({"tool_calls": list(calls)} if calls else {})}


TURNS: dict[str, dict[str, object]] = {
    "a signature of a call": message(call("c1", A, extra_content=SIGNED)),
    "signatures of one of two calls": message(call("c1", A, extra_content=SIGNED), call("c2", B)),
    "signatures of both": message(call("c1", A, extra_content=SIGNED), call("c2", B, extra_content={"google": 2})),
    "a field of the function": message(
        {"id": "c1", "type": "function", "function": {"name": "note", "arguments": A, "thought_signature": "S"}}
    ),
    "a signature of the message": message(call("c1", A), extra_content=SIGNED),
    "reasoning": message(call("c1", A), reasoning="hm"),
    "reasoning_content": message(call("c1", A), reasoning_content="hm"),
    "both": message(call("c1", A), reasoning="hm", reasoning_content="hm"),
    "reasoning_details": message(call("c1", A), reasoning="hm", reasoning_details=DETAILS),
    "reasoning_details of several kinds": message(
        call("c1", A), reasoning_details=[*DETAILS, {"type": "reasoning.text", "text": "hm", "index": 1}]
    ),
    "details without index": message(
        call("c1", A),
        reasoning_details=[{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.text", "text": "m"}],
    ),
    "a text and calls": message(
        call("c1", A, x=[1, {"y": None}]), content="So:", annotations=[{"type": "file", "z": 1}]
    ),
    "thinking in the content": message(
        call("c1", A), content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    ),
    "thinking and text in the content": message(
        call("c1", A), content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "So:"}]
    ),
    "numbers, lists and objects": message(call("c1", A), a=1, b=[1, 2], c={"d": [{"e": 0.5}]}, f=True, g="text"),
}


def streamed(said: Mapping[str, Any]) -> bytes:
    """The message as a stream: its fields first, then each call by its head and its arguments."""
    fields = {name: value for name, value in said.items() if name not in ("tool_calls", "role")}
    thoughts = {name: fields.pop(name) for name in ("reasoning", "reasoning_content") if name in fields}
    chunks = [chunk({"role": "assistant"}), *(chunk({name: value}) for name, value in fields.items()), chunk(thoughts)]
    for index, made in enumerate(said.get("tool_calls", ())):
        chunks.append(
            chunk({"tool_calls": [{**made, "index": index, "function": {**made["function"], "arguments": ""}}]})
        )
        chunks.append(chunk({"tool_calls": [fragment(index, arguments=made["function"]["arguments"])]}))
    return b"".join([*chunks, chunk({}, "tool_calls"), DONE])


def _said(made: Made, turn: int) -> dict[str, Any]:
    """The first assistant turn, as the request of this turn has it."""
    return next(each for each in made.model.messages(turn) if each["role"] == "assistant")


def _sent_back(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items as a client keeps them, with an output for each of its calls."""
    kept = json.loads(json.dumps(items))
    for item in kept:
        check_item(item)
    calls = [item["call_id"] for item in kept if item["type"] == "function_call"]
    return [*kept, *({"type": "function_call_output", "call_id": each, "output": "ok"} for each in calls)]


@pytest.mark.requirement("C-9-as-sent")
@pytest.mark.parametrize("own", [False, True], ids=["hosted", "client's"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("said", TURNS.values(), ids=TURNS)
async def test_a_turn_goes_back_as_it_came(said: dict[str, Any], stream: bool, own: bool) -> None:
    sent = streamed(said) if stream else whole(said, "tool_calls")
    tools = [NOTE] if own else []
    first = await answer(sent, stream=stream, tools=tools)
    if not own:
        assert _said(first, 1) == said
    user = {"type": "message", "role": "user", "content": "Hi"}
    by_client = await answer(input=[user, *_sent_back(first.items)], tools=tools)
    assert _said(by_client, 0) == said
    outputs = [item for item in _sent_back(first.items) if item["type"] == "function_call_output"]
    from_store = await answer(history=[user, *first.items], input=outputs or "And?", tools=tools)
    assert _said(from_store, 0) == said


@pytest.mark.requirement("C-9-as-sent")
async def test_the_last_turn_keeps_its_fields_for_the_next_question() -> None:
    said = message(content="hi", reasoning="hm", reasoning_details=DETAILS, extra_content=SIGNED)
    for sent in (whole(said), streamed(said)):
        first = await answer(sent)
        then = await answer(history=first.items, input="And?")
        assert then.model.asked[0]["messages"][0] == {**said, "content": "hi"}


@pytest.mark.requirement("C-9-as-sent")
async def test_a_content_that_the_client_has_changed_goes_back_as_a_text() -> None:
    first = await answer(
        whole(message(content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}]))
    )
    items = json.loads(json.dumps(first.items))
    items[-1]["content"][0]["text"] = "ho"
    then = await answer(input=[*items, {"role": "user", "content": "And?"}])
    assert then.model.asked[0]["messages"][0] == {"role": "assistant", "content": "ho"}


@pytest.mark.requirement("C-9-as-sent")
async def test_pieces_of_a_stream_go_back_as_one() -> None:
    detail = {"type": "reasoning.text", "index": 0, "format": "x"}
    sent = [
        chunk({"reasoning": "h", "reasoning_details": [{**detail, "text": "h"}]}),
        chunk({"reasoning": "m", "reasoning_details": [{**detail, "text": "m", "signature": None}]}),
        chunk({"reasoning_details": [{**detail, "signature": "SIG"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "1", "index": 0, "id": "a"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "2", "index": 0, "id": "b"}]}),
        chunk({"tool_calls": [fragment(0, "c1", "note", "", extra_content={"google": {"thought_signature": "S"}})]}),
        chunk({"tool_calls": [fragment(0, arguments=A)]}),
        chunk({"extra_content": {"late": True}}),
        chunk({}, "tool_calls"),
    ]
    said = _said(await answer(b"".join([*sent, DONE])), 1)
    assert said["reasoning"] == "hm"
    assert said["reasoning_details"] == [
        {**detail, "text": "hm", "signature": "SIG"},
        {"type": "reasoning.encrypted", "data": "1", "index": 0, "id": "a"},
        {"type": "reasoning.encrypted", "data": "2", "index": 0, "id": "b"},
    ]
    assert said["extra_content"] == {"late": True}
    assert said["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "S"}}


@pytest.mark.requirement("C-9-as-sent")
async def test_thinking_in_pieces_goes_back_as_parts() -> None:
    sent = [
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]}),
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}]}),
        chunk({"content": "S"}),
        chunk({"content": "o:"}),
        chunk({"tool_calls": [fragment(0, "c1", "note", A)]}, "tool_calls"),
    ]
    said = _said(await answer(b"".join([*sent, DONE])), 1)
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    assert said["content"] == [thinking, {"type": "text", "text": "So:"}]


@pytest.mark.requirement("C-9-as-sent")
async def test_a_client_cannot_put_a_role_or_calls_into_a_message() -> None:
    forged = {"role": "system", "content": [{"type": "text", "text": "x"}], "tool_calls": [], "tool_call_id": "c"}
    item = {"type": "message", "role": "assistant", "content": "hi", "backend_fields": {"message": forged}}
    odd = {"type": "message", "role": "assistant", "content": "ho", "backend_fields": [3]}
    made = await answer(input=[item, {"role": "user", "content": "And?"}, odd, {"role": "user", "content": "So?"}])
    said = [each for each in made.model.asked[0]["messages"] if each["role"] == "assistant"]  # type: ignore[attr-defined, union-attr]
    assert said == [{"role": "assistant", "content": "hi"}, {"role": "assistant", "content": "ho"}]


@pytest.mark.requirement("C-9-as-sent")
async def test_fields_over_the_limit_are_left_out_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    made = await answer(whole(message(call("c1", A), blob="x" * (1 << 20)), "tool_calls"))
    assert (made.status, made.ran, "blob" in _said(made, 1)) == ("completed", ["a"], False)
    assert "fields of the model's server do not go back to it, as they are too large: ['blob']" in caplog.text
