"""Client tools: a turn runs its hosted calls and returns the client's, which the request that goes on answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.responses.backend.script import Call, calls, says
from tests.responses.harness import MODEL, Harness, call_id_of

pytestmark = [pytest.mark.anyio, pytest.mark.process]

CITY: Any = {"type": "function", "name": "city", "description": "Find a city.", "parameters": {"type": "object"}}
MIXED = calls(Call("add", '{"a": 1, "b": 2}', "call_add"), Call("city", "{}", "call_city"))
OUTPUT = {"type": "function_call_output", "call_id": "call_city", "output": "Cork"}


@pytest.mark.requirement("C-9-client-turn")
async def test_a_mixed_turn_runs_its_hosted_calls_and_returns_the_clients(harness: Harness) -> None:
    harness.backend.plays(MIXED)
    answer = await harness.create(tools=[CITY])
    assert answer.status == "completed"
    key = answer.id.removeprefix("resp_")
    assert [(item.type, item.call_id, item.name) for item in answer.output] == [  # type: ignore[union-attr]
        ("function_call", f"call_{key}000_call_city", "city"),
        ("mcp_call", "call_add", "add"),
    ]
    assert harness.board.log == ["add 1 2"]
    assert len(harness.backend.asked) == 1
    assert harness.backend.asked[0].body["tools"][0] == {
        "type": "function",
        "function": {"name": "city", "description": "Find a city.", "parameters": {"type": "object"}},
    }


@pytest.mark.requirement("C-9-client-turn", "C-9-items")
async def test_a_streamed_mixed_turn_ends_the_clients_calls_before_the_hosted_ones_begin(harness: Harness) -> None:
    harness.backend.plays(MIXED)
    events = await harness.stream(tools=[CITY])
    kinds = [event.type for event in events]
    assert kinds.index("response.function_call_arguments.done") < kinds.index("response.mcp_call.in_progress")
    assert kinds[-3:] == ["response.mcp_call.completed", "response.output_item.done", "response.completed"]


@pytest.mark.requirement("C-9-client-turn", "C-9-approval-item")
async def test_a_mixed_turn_may_wait_for_a_person_as_well(harness: Harness) -> None:
    harness.backend.plays(calls(Call("ask_first", '{"what": "it"}', "call_ask"), *MIXED.calls))
    desk: Any = {"type": "mcp", "server_label": "desk"}
    answer = await harness.create(tools=[CITY, desk])
    assert [item.type for item in answer.output] == ["function_call", "mcp_approval_request", "mcp_call"]


@pytest.mark.requirement("C-9-client-turn", "I6-2-previous", "I6-2-round-trip")
@pytest.mark.parametrize("history", ["previous_response_id", "items", "items without ids"])
async def test_the_request_that_goes_on_answers_the_clients_calls(harness: Harness, history: str) -> None:
    harness.backend.plays(MIXED, says("3 in Cork."), says("Bye."))
    first = (await harness.post(model=MODEL, input="Go", tools=[CITY])).json()
    items = [item if history == "items" else {**item, "id": None} for item in first["output"]]
    output = {**OUTPUT, "call_id": call_id_of(first, "city")}
    members: dict[str, Any] = {"input": [{"role": "user", "content": "Go"}, *items, output]}
    if history == "previous_response_id":
        members = {"input": [output], "previous_response_id": first["id"]}
    second = (await harness.post(model=MODEL, tools=[CITY], **members)).json()
    assert harness.board.log == ["add 1 2"]
    assert [item["type"] for item in second["output"]] == ["message"]
    _, called, *answers = harness.backend.asked[1].messages
    assert [call["id"] for call in called["tool_calls"]] == ["call_city", "call_add"]
    assert [(each["tool_call_id"], each["content"]) for each in answers] == [("call_city", "Cork"), ("call_add", "3")]


@pytest.mark.requirement("C-9-client-turn")
async def test_a_client_call_that_nobody_answered_is_refused(harness: Harness) -> None:
    harness.backend.plays(MIXED)
    first = await harness.create("Go", tools=[CITY])
    answer = await harness.post(model=MODEL, input="And?", previous_response_id=first.id, tools=[CITY])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "missing_tool_output", "input")
    assert call_id_of(first.to_dict(), "city") in error["message"]
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
    answer: Any = {**OUTPUT, "call_id": call_id_of(first.to_dict(), "city"), "output": output}
    await harness.create([answer], previous_response_id=first.id, tools=[CITY])
    (told,) = [message["content"] for message in harness.backend.asked[1].messages if message["role"] == "tool"]
    assert told in (content, [{"type": "text", "text": content}])
