"""Hosted calls: how they run, what the model is told, and what it may not do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.responses.backend.script import Call, Turn, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.leaves("task", "thread")]


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


def told(harness: Harness, request: int = -1) -> list[str]:
    """The results that a request to the backend carries."""
    return [message["content"] for message in harness.backend.asked[request].messages if message["role"] == "tool"]


async def items(harness: Harness, **body: Any) -> list[dict[str, Any]]:
    answer = await harness.post(model=MODEL, input="Go", **body)
    assert answer.status_code == 200, answer.text
    return answer.json()["output"]


@pytest.mark.requirement("C-9-items", "C-9-item-types", "I6-1-loop")
async def test_a_hosted_call_is_an_item_of_its_own(harness: Harness) -> None:
    harness.backend.plays(calls(Call("add", '{"a": 1, "b": 2}', "call_7")), says("3"))
    call, message = await items(harness)
    assert call.pop("id")
    assert call == {
        "type": "mcp_call",
        "server_label": "desk",
        "status": "completed",
        "call_id": "call_7",
        "name": "add",
        "arguments": '{"a": 1, "b": 2}',
        "output": "3",
    }
    assert message["type"] == "message"


@pytest.mark.requirement("C-9-parallel")
async def test_calls_of_one_turn_run_side_by_side_and_their_results_stand_in_call_order(harness: Harness) -> None:
    harness.backend.plays(
        calls(
            Call("wait", '{"gate": "first"}', "call_1"),
            Call("add", '{"a": 1, "b": 1}', "call_2"),
            Call("wait", '{"gate": "last"}', "call_3"),
        ),
        says("done"),
    )
    answering = asyncio.create_task(items(harness))
    await harness.board.reached["first"].wait()
    await harness.board.reached["last"].wait()
    harness.board.open("last")
    while "ended last" not in harness.board.log:
        await asyncio.sleep(0)
    harness.board.open("first")
    made = await answering
    assert harness.board.log.index("ended last") < harness.board.log.index("ended first")
    assert told(harness) == ["went through first", "2", "went through last"]
    assert [item.get("call_id") for item in made] == ["call_1", "call_2", "call_3", None]


@pytest.mark.requirement("C-9-parallel")
async def test_a_client_may_ask_for_one_call_at_a_time(harness: Harness) -> None:
    harness.backend.plays(says("Hello"), says("Hello"))
    answer = await harness.create(parallel_tool_calls=False)
    assert answer.parallel_tool_calls is False
    assert harness.backend.asked[0].body["parallel_tool_calls"] is False
    await harness.create()
    assert "parallel_tool_calls" not in harness.backend.asked[1].body


@pytest.mark.requirement("I6-1-errors-back")
@pytest.mark.parametrize(
    ("call", "output"),
    [
        (Call("fail", '{"reason": "no luck"}'), "no luck"),
        (Call("panic", '{"secret": "hunter2"}'), 'internal error: builtin tool "panic" panicked'),
        (Call("add", '{"a": 1}'), 'invalid arguments for tool "add"'),
    ],
)
async def test_a_call_that_fails_is_a_failed_item_and_is_given_back(harness: Harness, call: Call, output: str) -> None:
    harness.backend.plays(calls(call), says("Oh."))
    failed, message = await items(harness)
    assert (failed["type"], failed["status"], message["type"]) == ("mcp_call", "failed", "message")
    assert failed["output"].startswith(output)
    assert told(harness) == [failed["output"]]
    assert "hunter2" not in failed["output"]


@pytest.mark.requirement("I6-bad-unknown-tool")
async def test_an_unknown_tool_is_given_back(harness: Harness) -> None:
    harness.backend.plays(calls(Call("teleport", "{}")), says("I cannot."))
    failed, _ = await items(harness)
    assert (failed["type"], failed["status"], failed["name"]) == ("mcp_call", "failed", "teleport")
    assert told(harness) == ['no builtin provider handles tool "teleport"']


@pytest.mark.requirement("I6-bad-arguments")
@pytest.mark.parametrize("arguments", ["{a: 1}", "", "[1, 2]", "null", '{"a": 1,', "\ud83d"])
async def test_arguments_that_are_no_json_object_reach_no_tool(harness: Harness, arguments: str) -> None:
    harness.backend.plays(calls(Call("add", arguments)), says("Oh."))
    failed, _ = await items(harness)
    assert failed["status"] == "failed"
    assert told(harness)[0].startswith('invalid arguments for tool "add"')
    assert harness.board.log == []


@pytest.mark.requirement("I6-bad-same-id")
async def test_two_calls_of_one_id_are_two_calls(harness: Harness) -> None:
    harness.backend.plays(
        calls(Call("add", '{"a": 1, "b": 1}', "same"), Call("add", '{"a": 2, "b": 2}', "same")),
        calls(Call("add", '{"a": 3, "b": 3}', "same")),
        says("2, 4, 6"),
    )
    made = await items(harness)
    ids = [item["call_id"] for item in made[:3]]
    assert len(set(ids)) == 3
    assert [item["output"] for item in made[:3]] == ["2", "4", "6"]
    results = [message for message in harness.backend.asked[2].messages if message["role"] == "tool"]
    by_id = {message["tool_call_id"]: message["content"] for message in results}
    assert [by_id[each] for each in ids] == ["2", "4", "6"]


@pytest.mark.requirement("C-9-max-turns", "I6-bad-for-ever")
async def test_a_model_that_calls_for_ever_is_stopped(staging: Staging) -> None:
    harness = await staging()
    harness.backend.plays_for_ever(calls(Call("add", '{"a": 1, "b": 2}')))
    answer = await harness.create()
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_turns"
    assert len(harness.backend.asked) == 10
    assert len(answer.output) == 10


@pytest.mark.requirement("C-9-max-tool-calls")
async def test_calls_over_max_tool_calls_do_not_run(harness: Harness) -> None:
    harness.backend.plays(
        calls(
            Call("add", '{"a": 1, "b": 1}', "call_1"),
            Call("add", '{"a": 2, "b": 2}', "call_2"),
            Call("add", '{"a": 3, "b": 3}', "call_3"),
        ),
        says("That is all."),
    )
    answer = await harness.create(max_tool_calls=2)
    assert answer.max_tool_calls == 2
    assert harness.board.log == ["add 1 1", "add 2 2"]
    assert told(harness) == ["2", "4", "max_tool_calls of 2 is reached"]
    assert harness.backend.asked[1].body["tool_choice"] == "none"
    assert [item.type for item in answer.output] == ["mcp_call", "mcp_call", "message"]


@pytest.mark.requirement("I6-1-loop")
async def test_text_before_a_call_is_a_message_before_it(harness: Harness) -> None:
    harness.backend.plays(Turn(text="Let me see.", calls=(Call("add", '{"a": 1, "b": 2}'),)), says("3"))
    made = await items(harness)
    assert [item["type"] for item in made] == ["message", "mcp_call", "message"]
    assert harness.backend.asked[1].messages[1]["content"] == "Let me see."
