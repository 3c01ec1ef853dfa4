"""Custom tools: the client's own, called with a text."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseCustomToolCall
from tests.responses.backend.script import Call, calls, says
from tests.responses.harness import MODEL, Harness, call_id_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.leaves("task", "thread"),
    pytest.mark.requirement("C-9-client-turn"),
]

PATCH: Any = {"type": "custom", "name": "patch", "description": "Apply a patch."}
GRAMMAR: Any = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
CALLED = calls(Call("patch", '{"input": "*** \\"a\\"\\n"}', "call_patch"))
TEXT = '*** "a"\n'
CALL: Any = {"type": "custom_tool_call", "call_id": "call_patch", "name": "patch", "input": ""}
OUTPUT: Any = {"type": "custom_tool_call_output", "call_id": "call_patch", "output": "done"}
OFFERED = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (None, "Apply a patch."),
        ({"type": "text"}, "Apply a patch."),
        (GRAMMAR, "Apply a patch.\n\nThe input keeps to this grammar (lark):\nstart: /a+/"),
    ],
)
async def test_a_custom_tool_is_offered_as_a_function_of_a_text(harness: Harness, form: Any, told: str) -> None:
    harness.backend.plays(says("Hello"))
    tool = PATCH if form is None else {**PATCH, "format": form}
    answer = await harness.post(model=MODEL, input="Go", tools=[tool])
    assert answer.json()["tools"] == [tool]
    assert harness.backend.asked[0].body["tools"][0] == {
        "type": "function",
        "function": {"name": "patch", "description": told, "parameters": OFFERED},
    }


async def test_its_calls_are_given_to_the_client_with_their_text(harness: Harness) -> None:
    harness.backend.plays(CALLED)
    answer = await harness.create(tools=[PATCH])
    (item,) = answer.output
    assert isinstance(item, ResponseCustomToolCall)
    assert (item.call_id.endswith("_call_patch"), item.name, item.input) == (True, "patch", TEXT)


@pytest.mark.requirement("I6-2-streaming")
async def test_a_stream_tells_of_the_text(harness: Harness) -> None:
    harness.backend.plays(CALLED)
    events = await harness.stream(tools=[PATCH])
    assert [event.type for event in events][2:] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [getattr(event, "delta", None) or getattr(event, "input", None) for event in events[3:5]] == [TEXT, TEXT]


@pytest.mark.parametrize("arguments", ["*** a", '{"input": 7}', '"*** a"', "[]"])
async def test_a_model_that_does_not_keep_to_the_function_is_shown_as_it_wrote(
    harness: Harness, arguments: str
) -> None:
    harness.backend.plays(calls(Call("patch", arguments, "call_patch")))
    (item,) = (await harness.create(tools=[PATCH])).output
    assert isinstance(item, ResponseCustomToolCall)
    assert item.input == arguments


@pytest.mark.requirement("I6-2-previous", "I6-2-round-trip")
@pytest.mark.parametrize("kept", [True, False])
async def test_the_conversation_goes_on_with_the_answer(harness: Harness, kept: bool) -> None:
    harness.backend.plays(calls(Call("add", '{"a": 1, "b": 2}', "call_add"), *CALLED.calls), says("Good."))
    first = (await harness.post(model=MODEL, input="Go", tools=[PATCH], store=kept)).json()
    assert [item["type"] for item in first["output"]] == ["custom_tool_call", "mcp_call"]
    assert harness.board.log == ["add 1 2"]
    history = [] if kept else [{"role": "user", "content": "Go"}, *first["output"]]
    previous = {"previous_response_id": first["id"]} if kept else {}
    output = {**OUTPUT, "call_id": call_id_of(first, "patch")}
    second = await harness.post(model=MODEL, input=[*history, output], tools=[PATCH], **previous)
    assert harness.board.log == ["add 1 2"]
    assert second.json()["output"][-1]["content"][0]["text"] == "Good."
    (called,) = [message for message in harness.backend.asked[1].messages if message["role"] == "assistant"]
    assert [call["function"] for call in called["tool_calls"]] == [
        {"name": "patch", "arguments": '{"input":"*** \\"a\\"\\n"}'},
        {"name": "add", "arguments": '{"a": 1, "b": 2}'},
    ]
    answers = [message["content"] for message in harness.backend.asked[1].messages if message["role"] == "tool"]
    assert answers == ["done", "3"]


@pytest.mark.requirement("C-9-allowed-tools", "I6-1-tool-choice")
async def test_a_choice_may_name_a_custom_tool(harness: Harness) -> None:
    named: Any = {"type": "custom", "name": "patch"}
    harness.backend.plays(says("Hello"), says("Hello"), says("Hello"))
    await harness.create(tools=[PATCH], tool_choice=named)
    await harness.create(tools=[PATCH], tool_choice={"type": "allowed_tools", "mode": "required", "tools": [named]})
    await harness.create(tools=[PATCH], extra_body={"allowed_tools": [named]})
    forced, required, allowed = harness.backend.asked
    assert forced.body["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    assert (required.body["tool_choice"], required.tool_names, allowed.tool_names) == ("required", ["patch"], ["patch"])


@pytest.mark.requirement("I6-bad-requests")
@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"input": "x", "tools": [{"type": "custom"}]}, "invalid_request", "tools[0].name"),
        ({"input": "x", "tools": [{**PATCH, "format": "text"}]}, "invalid_request", "tools[0].format"),
        ({"input": "x", "tool_choice": {"type": "custom", "name": "patch"}}, "invalid_request", "tool_choice"),
        (
            {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "patch"}]},
            "invalid_request",
            "input[0].input",
        ),
        ({"input": [{**CALL, "name": "add"}]}, "missing_tool_output", "input"),
        ({"input": [OUTPUT]}, "unknown_call_id", "input[0].call_id"),
    ],
)
async def test_what_is_wrong_with_one_is_refused(harness: Harness, body: dict[str, Any], code: str, param: str) -> None:
    answer = await harness.post(model=MODEL, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)
    assert harness.backend.asked == []
