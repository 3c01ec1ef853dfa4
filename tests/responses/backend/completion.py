"""A scripted turn as Chat Completions has it: one object, or the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.responses.backend.script import Call, Turn, Usage

MODEL = "scripted"
DONE = b"data: [DONE]\n\n"


def completion(turn: Turn) -> bytes:
    """The whole answer as one JSON object."""
    message: dict[str, object] = {"role": "assistant", "content": turn.text or None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.refusal:
        message["refusal"] = turn.refusal
    if turn.calls:
        message["tool_calls"] = [_call(call) for call in turn.calls]
    choice = {"index": 0, "message": message, "finish_reason": turn.finish_reason, "logprobs": None}
    return json.dumps({**_head("chat.completion"), "choices": [choice], **_usage(turn.usage)}).encode()


def events(turn: Turn, *, with_usage: bool) -> Iterator[bytes]:
    """The same as events without the last, `DONE`. Usage comes as an event of its own, where it was asked for."""
    yield _event({"role": "assistant", "content": ""})
    for name, text in (("reasoning_content", turn.reasoning), ("content", turn.text), ("refusal", turn.refusal)):
        for piece in _pieces(text, turn.size):
            yield _event({name: piece})
    for index, call in enumerate(turn.calls):
        yield _event(
            {"tool_calls": [{"index": index, **_call(call), "function": {"name": call.name, "arguments": ""}}]}
        )
        for piece in _pieces(call.arguments, turn.size):
            yield _event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _event({}, turn.finish_reason)
    if with_usage and turn.usage is not None:
        yield _line({**_head("chat.completion.chunk"), "choices": [], **_usage(turn.usage)})


def _head(kind: str) -> Mapping[str, object]:
    return {"id": "chatcmpl-scripted", "object": kind, "created": 1, "model": MODEL}


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _event(delta: Mapping[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _line({**_head("chat.completion.chunk"), "choices": [choice]})


def _line(value: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _usage(usage: Usage | None) -> Mapping[str, object]:
    if usage is None:
        return {}
    return {
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }
    }
