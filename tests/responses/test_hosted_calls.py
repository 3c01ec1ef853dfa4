"""Hosted calls: how they run, what the model is told, and what it may not do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.responses.backend.script import Call, Turn, calls, says
from tests.responses.conftest import Staging
from tests.responses.stage import MODEL, Stage

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.leaves("task", "thread")]


@pytest.fixture
def stage(shared_stage: Stage) -> Stage:
    return shared_stage


def told(stage: Stage, request: int = -1) -> list[str]:
    """The results that a request to the backend carries."""
    return [message["content"] for message in stage.backend.asked[request].messages if message["role"] == "tool"]


async def items(stage: Stage, **body: Any) -> list[dict[str, Any]]:
    answer = await stage.post(model=MODEL, input="Go", **body)
    assert answer.status_code == 200, answer.text
    return answer.json()["output"]


@pytest.mark.requirement("C-9-items", "C-9-item-types", "I6-1-loop")
async def test_a_hosted_call_is_an_item_of_its_own(stage: Stage) -> None:
    stage.backend.plays(calls(Call("add", '{"a": 1, "b": 2}', "call_7")), says("3"))
    call, message = await items(stage)
    assert call.pop("id")
    assert call == {
        "type": "toolplug:tool_call",
        "status": "completed",
        "call_id": "call_7",
        "name": "add",
        "arguments": '{"a": 1, "b": 2}',
        "output": "3",
    }
    assert message["type"] == "message"


@pytest.mark.requirement("C-9-parallel")
async def test_calls_of_one_turn_run_side_by_side_and_their_results_stand_in_call_order(stage: Stage) -> None:
    stage.backend.plays(
        calls(
            Call("wait", '{"gate": "first"}', "call_1"),
            Call("add", '{"a": 1, "b": 1}', "call_2"),
            Call("wait", '{"gate": "last"}', "call_3"),
        ),
        says("done"),
    )
    answering = asyncio.create_task(items(stage))
    await stage.board.reached["first"].wait()
    await stage.board.reached["last"].wait()
    stage.board.open("last")
    while "ended last" not in stage.board.log:
        await asyncio.sleep(0)
    stage.board.open("first")
    made = await answering
    assert stage.board.log.index("ended last") < stage.board.log.index("ended first")
    assert told(stage) == ["went through first", "2", "went through last"]
    assert [item.get("call_id") for item in made] == ["call_1", "call_2", "call_3", None]


@pytest.mark.requirement("C-9-parallel")
async def test_a_client_may_ask_for_one_call_at_a_time(stage: Stage) -> None:
    stage.backend.plays(says("Hello"), says("Hello"))
    answer = await stage.create(parallel_tool_calls=False)
    assert answer.parallel_tool_calls is False
    assert stage.backend.asked[0].body["parallel_tool_calls"] is False
    await stage.create()
    assert "parallel_tool_calls" not in stage.backend.asked[1].body


@pytest.mark.requirement("I6-1-errors-back")
@pytest.mark.parametrize(
    ("call", "output"),
    [
        (Call("fail", '{"reason": "no luck"}'), "no luck"),
        (Call("panic", '{"secret": "hunter2"}'), 'internal error: builtin tool "panic" panicked'),
        (Call("add", '{"a": 1}'), 'invalid arguments for tool "add"'),
    ],
)
async def test_a_call_that_fails_is_a_failed_item_and_is_given_back(stage: Stage, call: Call, output: str) -> None:
    stage.backend.plays(calls(call), says("Oh."))
    failed, message = await items(stage)
    assert (failed["type"], failed["status"], message["type"]) == ("toolplug:tool_call", "failed", "message")
    assert failed["output"].startswith(output)
    assert told(stage) == [failed["output"]]
    assert "hunter2" not in failed["output"]


@pytest.mark.requirement("I6-bad-unknown-tool")
async def test_an_unknown_tool_is_given_back(stage: Stage) -> None:
    stage.backend.plays(calls(Call("teleport", "{}")), says("I cannot."))
    failed, _ = await items(stage)
    assert (failed["type"], failed["status"], failed["name"]) == ("toolplug:tool_call", "failed", "teleport")
    assert told(stage) == ['no builtin provider handles tool "teleport"']


@pytest.mark.requirement("I6-bad-arguments")
@pytest.mark.parametrize("arguments", ["{a: 1}", "", "[1, 2]", "null", '{"a": 1,', "\ud83d"])
async def test_arguments_that_are_no_json_object_reach_no_tool(stage: Stage, arguments: str) -> None:
    stage.backend.plays(calls(Call("add", arguments)), says("Oh."))
    failed, _ = await items(stage)
    assert failed["status"] == "failed"
    assert told(stage)[0].startswith('invalid arguments for tool "add"')
    assert stage.board.log == []


@pytest.mark.requirement("I6-bad-same-id")
async def test_two_calls_of_one_id_are_two_calls(stage: Stage) -> None:
    stage.backend.plays(
        calls(Call("add", '{"a": 1, "b": 1}', "same"), Call("add", '{"a": 2, "b": 2}', "same")),
        calls(Call("add", '{"a": 3, "b": 3}', "same")),
        says("2, 4, 6"),
    )
    made = await items(stage)
    ids = [item["call_id"] for item in made[:3]]
    assert len(set(ids)) == 3
    assert [item["output"] for item in made[:3]] == ["2", "4", "6"]
    results = [message for message in stage.backend.asked[2].messages if message["role"] == "tool"]
    by_id = {message["tool_call_id"]: message["content"] for message in results}
    assert [by_id[each] for each in ids] == ["2", "4", "6"]


@pytest.mark.requirement("C-9-max-turns", "I6-bad-for-ever")
async def test_a_model_that_calls_for_ever_is_stopped(staging: Staging) -> None:
    stage = await staging()
    stage.backend.plays_for_ever(calls(Call("add", '{"a": 1, "b": 2}')))
    answer = await stage.create()
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_turns"
    assert len(stage.backend.asked) == 10
    assert len(answer.output) == 10


@pytest.mark.requirement("C-9-max-tool-calls")
async def test_calls_over_max_tool_calls_do_not_run(stage: Stage) -> None:
    stage.backend.plays(
        calls(
            Call("add", '{"a": 1, "b": 1}', "call_1"),
            Call("add", '{"a": 2, "b": 2}', "call_2"),
            Call("add", '{"a": 3, "b": 3}', "call_3"),
        ),
        says("That is all."),
    )
    answer = await stage.create(max_tool_calls=2)
    assert answer.max_tool_calls == 2
    assert stage.board.log == ["add 1 1", "add 2 2"]
    assert told(stage) == ["2", "4", "max_tool_calls of 2 is reached"]
    assert stage.backend.asked[1].body["tool_choice"] == "none"
    assert [item.type for item in answer.output] == ["toolplug:tool_call", "toolplug:tool_call", "message"]


@pytest.mark.requirement("I6-1-loop")
async def test_text_before_a_call_is_a_message_before_it(stage: Stage) -> None:
    stage.backend.plays(Turn(text="Let me see.", calls=(Call("add", '{"a": 1, "b": 2}'),)), says("3"))
    made = await items(stage)
    assert [item["type"] for item in made] == ["message", "toolplug:tool_call", "message"]
    assert stage.backend.asked[1].messages[1]["content"] == "Let me see."
