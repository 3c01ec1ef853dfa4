"""Items as messages, also those that were made elsewhere."""

from __future__ import annotations

import pytest

from toolplug.responses.transcript import messages

CALL = {"type": "function_call", "call_id": "c1", "name": "city", "arguments": "{}"}
OTHER = {"type": "function_call", "call_id": "c2", "name": "time", "arguments": "{}"}


def _answer(call_id: str, output: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _user(text: str) -> dict[str, object]:
    return {"type": "message", "role": "user", "content": text}


def _called(call_id: str, name: str) -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


@pytest.mark.requirement("I6-2-round-trip")
def test_answers_stand_behind_their_calls_wherever_the_client_put_them() -> None:
    said = messages("Be brief", [_user("Hi"), CALL, OTHER, _user("Wait"), _answer("c2", "noon"), _answer("c1", "Cork")])
    assert said == [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [_called("c1", "city"), _called("c2", "time")]},
        {"role": "tool", "tool_call_id": "c1", "content": "Cork"},
        {"role": "tool", "tool_call_id": "c2", "content": "noon"},
        {"role": "user", "content": "Wait"},
    ]


@pytest.mark.requirement("I6-2-round-trip")
def test_a_hosted_call_of_another_server_loses_nothing_that_it_shows() -> None:
    item = {"type": "x:search_call", "id": "s1", "status": "completed", "queries": ["otters"], "results": None}
    assert messages(None, [item]) == [
        {"role": "assistant", "content": None, "tool_calls": [_called("s1", "x:search")]},
        {"role": "tool", "tool_call_id": "s1", "content": '{"queries":["otters"]}'},
    ]


@pytest.mark.requirement("I6-2-reasoning")
def test_thoughts_go_back_with_the_answer_that_they_led_to() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}
    assert messages(None, [thought, said]) == [
        {"role": "assistant", "content": "Yes", "reasoning_content": "Hm."},
    ]


@pytest.mark.requirement("C-9-approval-item")
def test_a_call_that_waits_for_a_person_is_told_as_not_made() -> None:
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "city", "arguments": "{}", "call_id": "c1"}
    (_, answer) = messages(None, [asked])
    assert answer["content"] == "this call waits for a person's approval and has not been made"
    done = {"type": "toolplug:tool_call", "id": "t", "call_id": "c1", "name": "city", "arguments": "{}", "output": "ok"}
    assert [message.get("content") for message in messages(None, [asked, done])] == [None, "ok"]


@pytest.mark.requirement("I6-2-previous")
def test_a_call_that_was_cut_off_is_no_call_and_a_hosted_one_says_so() -> None:
    assert messages(None, [{**CALL, "status": "incomplete", "arguments": '{"a'}]) == []
    cut = {"type": "toolplug:tool_call", "id": "t", "call_id": "c1", "name": "city", "status": "incomplete"}
    assert messages(None, [cut])[1]["content"] == "this call was broken off before it had ended"
