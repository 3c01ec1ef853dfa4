"""What a Chat Completions server sends is read as far as it is what it should be."""

from __future__ import annotations

from typing import Any

import pytest

from toolplug.errors import BackendFailed
from toolplug.parts.responses.answers.completions import delta_of
from toolplug.parts.responses.backend import CallPart, Delta, Usage


def _ignore(what: str) -> None:
    """Take what is left out of no interest here."""


@pytest.mark.requirement("I6-1-usage")
def test_a_whole_completion_is_one_piece() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "Hm", "tool_calls": [call]}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    answer = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    assert delta_of(answer, whole=True, note=_ignore) == Delta(
        "Hi",
        "Hm",
        "",
        (CallPart(0, "c", "add", "{}"),),
        "stop",
        Usage(3, 2, 1, 0),
        reasoning_fields=("reasoning_content",),
    )


@pytest.mark.requirement("I6-1-usage")
def test_the_last_chunk_of_a_stream_has_the_usage_and_no_choice() -> None:
    assert delta_of({"choices": [], "usage": {"prompt_tokens": 3}}, whole=False, note=_ignore) == Delta(usage=Usage(3))


@pytest.mark.requirement("I6-bad-garbage")
@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "text",
        {},
        {"choices": []},
        {"choices": [{"message": {"content": 7}}]},
        {"choices": [{"message": {"tool_calls": "add"}}]},
        {"choices": [{"message": {}}]},
    ],
)
def test_what_is_no_answer_is_garbage(answer: Any) -> None:
    with pytest.raises(BackendFailed) as failed:
        delta_of(answer, whole=True, note=_ignore)
    assert failed.value.code == "backend_garbage"


@pytest.mark.requirement("I6-bad-garbage")
def test_half_a_character_is_replaced() -> None:
    assert delta_of({"choices": [{"delta": {"content": "a\ud83d"}}]}, whole=False, note=_ignore).text == "a?"
