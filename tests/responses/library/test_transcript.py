"""Items as messages, also those that were made elsewhere."""

from __future__ import annotations

import pytest

from toolplug.parts.responses.items.transcript import messages

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
    done = {"type": "mcp_call", "id": "t", "call_id": "c1", "name": "city", "arguments": "{}", "output": "ok"}
    assert [message.get("content") for message in messages(None, [asked, done])] == [None, "ok"]


@pytest.mark.requirement("I6-2-previous")
def test_a_call_that_was_cut_off_is_no_call_and_a_hosted_one_says_so() -> None:
    assert messages(None, [{**CALL, "status": "incomplete", "arguments": '{"a'}]) == []
    cut = {"type": "mcp_call", "id": "t", "call_id": "c1", "name": "city", "status": "incomplete"}
    assert messages(None, [cut])[1]["content"] == "this call was broken off before it had ended"


RESPONSE = "0" * 32


def _hosted(call_id: str, **members: object) -> dict[str, object]:
    call = {"type": "mcp_call", "call_id": call_id, "name": call_id, "arguments": "{}", "output": f"from {call_id}"}
    return {**call, **members}


def _call(call_id: str, **members: object) -> dict[str, object]:
    return {"type": "function_call", "call_id": call_id, "name": call_id, "arguments": "{}", **members}


def _made_in(turn: int, place: int, prefix: str = "mcp") -> str:
    return f"{prefix}_{RESPONSE}{place:03x}t{turn:x}"


def _text(text: str) -> dict[str, object]:
    return {"type": "message", "role": "assistant", "content": text}


def _thought(text: str) -> dict[str, object]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def _told(*items: dict[str, object]) -> list[str]:
    """The conversation in short: `text[calls]` for each turn of the model, `id` for each answer."""
    lines: list[str] = []
    for message in messages(None, items):
        thought = f"({message['reasoning_content']}) " if "reasoning_content" in message else ""
        made = message.get("tool_calls")
        called = [str(each["id"]) for each in made] if isinstance(made, list) else []
        text = message["content"] or ""
        lines.append(str(message.get("tool_call_id") or f"{thought}{text}{called or ''}"))
    return lines


@pytest.mark.requirement("I6-2-round-trip")
def test_calls_that_were_made_one_after_another_are_told_so() -> None:
    chain = (_call("a"), _answer("a", "one"), _call("b"), _answer("b", "two"))
    assert _told(*chain) == ["['a']", "a", "['b']", "b"]
    assert _told(_call("a"), _call("b"), _answer("a", "one"), _answer("b", "two")) == ["['a', 'b']", "a", "b"]
    assert _told(_hosted("a"), _call("b"), _answer("b", "two")) == ["['a']", "a", "['b']", "b"]
    assert _told(_hosted("a"), _hosted("b")) == ["['a']", "a", "['b']", "b"]


@pytest.mark.requirement("I6-2-round-trip", "C-9-client-turn")
def test_hosted_calls_behind_a_clients_call_were_made_with_it() -> None:
    mixed = (_text("So: "), _call("a"), _hosted("b"), _hosted("c"), _answer("a", "one"))
    assert _told(*mixed, _text("Done")) == ["So: ['a', 'b', 'c']", "a", "b", "c", "Done"]
    assert _told(_call("a"), _answer("a", "one"), _hosted("b")) == ["['a']", "a", "['b']", "b"]


@pytest.mark.requirement("I6-2-round-trip")
def test_the_ids_of_items_say_what_was_made_together() -> None:
    first = (_hosted("a", id=_made_in(1, 0)), _hosted("b", id=_made_in(1, 1)), _hosted("c", id=_made_in(2, 2)))
    assert _told(*first) == ["['a', 'b']", "a", "b", "['c']", "c"]
    one, two = _call("a", id=_made_in(1, 0, "fc")), _call("b", id=_made_in(1, 1, "fc"))
    assert _told(one, _answer("a", "one"), two, _answer("b", "two")) == ["['a', 'b']", "a", "b"]
    assert _told(one, _call("b", id=_made_in(2, 1, "fc"))) == ["['a']", "a", "['b']", "b"]
    asked = {**_hosted("d"), "type": "mcp_approval_request", "id": f"{_made_in(1, 1, 'mcpr')}_{'f' * 24}"}
    assert _told(one, asked) == ["['a', 'd']", "a", "d"]


@pytest.mark.requirement("I6-2-reasoning")
def test_thoughts_stay_with_the_calls_that_they_led_to() -> None:
    chain = (_thought("1"), _call("a"), _answer("a", "one"), _thought("2"), _call("b"), _answer("b", "two"))
    assert _told(*chain, _text("Done")) == ["(1) ['a']", "a", "(2) ['b']", "b", "Done"]
    assert _told(_thought("1"), _call("a"), _thought("2"), _call("b")) == ["(1) ['a']", "a", "(2) ['b']", "b"]


@pytest.mark.requirement("I6-2-round-trip")
def test_a_text_beside_calls_is_one_message_with_them() -> None:
    assert _told(_text("So: "), _hosted("a")) == ["So: ['a']", "a"]
    assert _told(_call("a"), _text("Wait."), _answer("a", "one")) == ["Wait.['a']", "a"]
    assert _told(_call("a"), _answer("a", "one"), _text("Done")) == ["['a']", "a", "Done"]
    assert _told(_hosted("a"), _text("Done")) == ["['a']", "a", "Done"]
