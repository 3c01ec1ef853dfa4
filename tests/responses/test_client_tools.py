"""Client tools: a turn with one runs nothing, and the request that goes on runs what was left, once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.responses.backend.script import Call, calls, says
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process]

CITY: Any = {"type": "function", "name": "city", "description": "Find a city.", "parameters": {"type": "object"}}
MIXED = calls(Call("add", '{"a": 1, "b": 2}', "call_add"), Call("city", "{}", "call_city"))
OUTPUT = {"type": "function_call_output", "call_id": "call_city", "output": "Cork"}


@pytest.mark.requirement("C-9-client-turn")
async def test_a_turn_with_a_client_tool_runs_nothing_and_returns_the_calls(harness: Harness) -> None:
    harness.backend.plays(MIXED)
    answer = await harness.create(tools=[CITY])
    assert answer.status == "completed"
    assert [(item.type, item.call_id, item.name) for item in answer.output if item.type == "function_call"] == [
        ("function_call", "call_add", "add"),
        ("function_call", "call_city", "city"),
    ]
    assert harness.board.log == []
    assert harness.backend.asked[0].body["tools"][0] == {
        "type": "function",
        "function": {"name": "city", "description": "Find a city.", "parameters": {"type": "object"}},
    }


@pytest.mark.requirement("C-9-client-turn", "I6-2-previous")
async def test_the_hosted_calls_of_that_turn_run_first_in_the_request_that_goes_on(harness: Harness) -> None:
    harness.backend.plays(MIXED, says("3 in Cork."), says("Bye."))
    first = await harness.create("Go", tools=[CITY])
    second = await harness.create([OUTPUT], previous_response_id=first.id, tools=[CITY])
    assert harness.board.log == ["add 1 2"]
    assert second.output_text == "3 in Cork."
    messages = harness.backend.asked[1].messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert {message["tool_call_id"]: message["content"] for message in messages[2:]} == {
        "call_add": "3",
        "call_city": "Cork",
    }
    await harness.create("Thanks", previous_response_id=second.id, tools=[CITY])
    assert harness.board.log == ["add 1 2"]


@pytest.mark.requirement("C-9-client-turn", "I6-2-round-trip")
async def test_who_sends_the_items_back_goes_on_in_the_same_way(harness: Harness) -> None:
    harness.backend.plays(MIXED, says("3 in Cork."))
    first = (await harness.post(model=MODEL, input="Go", tools=[CITY], store=False)).json()
    history = [{"role": "user", "content": "Go"}, *first["output"], OUTPUT]
    second = (await harness.post(model=MODEL, input=history, tools=[CITY], store=False)).json()
    assert harness.board.log == ["add 1 2"]
    assert second["output"][-1]["content"][0]["text"] == "3 in Cork."


@pytest.mark.requirement("C-9-client-turn")
async def test_a_client_call_that_nobody_answered_is_refused(harness: Harness) -> None:
    harness.backend.plays(MIXED)
    first = await harness.create("Go", tools=[CITY])
    answer = await harness.post(model=MODEL, input="And?", previous_response_id=first.id, tools=[CITY])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "missing_tool_output", "input")
    assert harness.board.log == []
    assert len(harness.backend.asked) == 1


@pytest.mark.requirement("I6-bad-requests")
async def test_an_answer_to_a_call_that_nobody_made_is_refused(harness: Harness) -> None:
    answer = await harness.post(model=MODEL, input=[{"role": "user", "content": "Go"}, OUTPUT], tools=[CITY])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "unknown_call_id", "input[1].call_id")


@pytest.mark.requirement("C-9-client-turn")
@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("", ""),
        ("Cork", "Cork"),
        ([{"type": "input_text", "text": "Cork"}], "Cork"),
    ],
)
async def test_an_answer_may_be_text_or_parts(harness: Harness, output: Any, content: str) -> None:
    harness.backend.plays(calls(Call("city", "{}", "call_city")), says("Thanks."))
    first = await harness.create("Go", tools=[CITY])
    await harness.create([{**OUTPUT, "output": output}], previous_response_id=first.id, tools=[CITY])
    (told,) = [message["content"] for message in harness.backend.asked[1].messages if message["role"] == "tool"]
    assert told in (content, [{"type": "text", "text": content}])
