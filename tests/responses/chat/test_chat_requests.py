"""What of a chat's request goes to the model's server, what is ignored and named, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from tests.http.conftest import ALICE
from tests.responses.backend.script import Call, Turn, Usage, calls, says
from tests.responses.harness import MODEL, Harness

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.process,
    pytest.mark.requirement("I32-chat-passes"),
    pytest.mark.leaves("task", "thread"),
]

USER = {"role": "user", "content": "Hello"}
HEADER = "Toolplug-Warnings"
ADD = Call("add", '{"a": 1, "b": 2}', "call_add")
PASSED: dict[str, Any] = {
    "temperature": 1.5,
    "top_p": 0.5,
    "presence_penalty": -1.0,
    "frequency_penalty": 1.0,
    "seed": 7,
    "stop": ["end"],
    "logprobs": True,
    "top_logprobs": 2,
    "response_format": {"type": "json_object"},
    "reasoning_effort": "low",
    "user": "ada",
    "max_tokens": 100,
    "prediction": {"type": "content", "content": "x"},
    "chat_template_kwargs": {"enable_thinking": False},
    "top_k": None,
    "copy": 1,
}


@pytest.fixture
def harness(shared_stage: Harness) -> Harness:
    return shared_stage


async def post(harness: Harness, **members: Any) -> httpx2.Response:
    return await harness.http.post("/v1/chat/completions", json={"model": MODEL, "messages": [USER], **members})


async def test_fields_go_to_the_models_server_as_they_came(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    answer = await post(harness, **PASSED, metadata={"toolplug_strict": "true", "for": "ada"})
    assert answer.status_code == 200, answer.text
    assert HEADER not in answer.headers
    body = dict(harness.backend.asked[0].body)
    assert body.pop("messages") == [USER]
    assert {tool["function"]["name"] for tool in body.pop("tools")} >= {"add"}
    assert body == {"model": MODEL, **PASSED, "metadata": {"for": "ada"}}


async def test_messages_go_as_they_came(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    messages = [
        {"role": "system", "content": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"role": "user", "name": "ada", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}, "extra_content": {"s": 1}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "ok"}]},
    ]  # fmt: skip
    cached = {"type": "function", "function": {"name": "x"}, "cache_control": {"type": "ephemeral"}}
    await post(harness, messages=messages, tools=[cached])
    assert harness.backend.asked[0].messages == messages
    assert harness.backend.asked[0].body["tools"][0] == cached


async def test_the_length_is_that_of_all_turns(harness: Harness) -> None:
    harness.backend.plays(Turn(calls=(ADD,), usage=Usage(10, 30)), Turn(calls=(ADD,), usage=Usage(10, 90)), says("3"))
    await post(harness, max_completion_tokens=100)
    assert [asked.body["max_completion_tokens"] for asked in harness.backend.asked] == [100, 70, 1]


async def test_a_choice_of_a_function_is_for_the_first_turn(harness: Harness) -> None:
    harness.backend.plays(calls(ADD), says("3"))
    choice = {"type": "function", "function": {"name": "add"}}
    answer = await post(harness, tool_choice=choice, parallel_tool_calls=False)
    assert answer.json()["choices"][0]["message"]["content"] == "3"
    assert [asked.body["tool_choice"] for asked in harness.backend.asked] == [choice, "auto"]
    assert [asked.body["parallel_tool_calls"] for asked in harness.backend.asked] == [False, False]


async def test_allowed_tools_are_the_only_ones_offered(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    tools = [{"type": "function", "function": {"name": "add"}}]
    await post(harness, tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}})
    assert harness.backend.asked[0].tool_names == ["add"]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_not_known_is_ignored_and_named(harness: Harness, stream: bool) -> None:
    harness.backend.plays(says("Hi"))
    content = [{"type": "smell"}, {"type": "text", "text": "Hello"}]
    messages = [{"role": "ghost", "content": "Boo"}, {"role": "user", "content": content}]
    members: dict[str, Any] = {"messages": messages, "tools": [{"type": "image_generation"}], "stream": stream}
    answer = await post(harness, **members, stream_options={"wings": 2} if stream else None)
    assert answer.status_code == 200, answer.text
    expected = ["messages[0].ghost", "messages[1].content[0].smell", "tools[0].image_generation"]
    assert answer.headers[HEADER].split(", ") == ["stream_options.wings"] * stream + expected
    first = json.loads(answer.text.split("data: ")[1]) if stream else answer.json()
    codes = [warning["code"] for warning in first["toolplug"]["warnings"]]
    assert codes == ["unknown_field"] * stream + ["unknown_item", "unknown_part", "unmatched_stub"]
    assert harness.backend.asked[0].messages == [{"role": "user", "content": content[1:]}]


async def test_a_message_of_which_nothing_is_left_tells_the_model_so(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    await post(harness, messages=[{"role": "user", "content": [{"type": "smell"}]}])
    (told,) = harness.backend.asked[0].messages
    assert told["content"] == [{"type": "text", "text": "[left out: smell]"}]


async def test_a_strict_request_is_refused_for_it(harness: Harness) -> None:
    messages = [{"role": "user", "content": [{"type": "smell"}]}]
    answer = await post(harness, messages=messages, metadata={"toolplug_strict": "true"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages[0].content[0]")
    assert harness.backend.asked == []


EMPTY = {"type": "text", "text": ""}
BAD: list[tuple[dict[str, Any], int, str, str]] = [
    ({"messages": []}, 400, "messages", "1"),
    ({"messages": [{"content": "x"}]}, 400, "messages[0].role", "has a role"),
    ({"messages": [{"role": "ghost"}]}, 400, "messages", "known here"),
    ({"messages": [{"role": "user", "content": 1}]}, 400, "messages[0].content", "list of parts"),
    ({"messages": [{"role": "user", "content": [{}]}]}, 400, "messages[0].content[0].type", "has a type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "messages[0].content[0].text", "be text"),
    ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages[0].tool_call_id", "id of its call"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, 400, "messages[0].tool_calls", "list of calls"),
    ({"messages": [USER] * 4097}, 422, "messages", "4,096"),
    ({"messages": [{"role": "user", "content": [EMPTY] * 4097}]}, 422, "messages[0].content", ""),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, 400, "tools[0].name", "64"),
    ({"tools": [{"name": "a"}]}, 400, "tools[0].type", "has a type"),
    ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, 400, "tool_choice", "no tool of this request"),
    ({"tool_choice": "sometimes"}, 400, "tool_choice", "no choice"),
    ({"n": 0}, 400, "n", "one answer"),
    ({"functions": [{"name": "a"}]}, 400, "functions", "send them as tools"),
    ({"function_call": "auto"}, 400, "function_call", "tool_choice"),
    ({"modalities": ["text", "audio"]}, 400, "modalities", "text only"),
    ({"stream": "yes"}, 400, "stream", "true or false"),
    ({"metadata": {"a": 1}}, 400, "metadata.a", "text"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "param", "says"), BAD, ids=[param for _, _, param, _ in BAD])
async def test_what_cannot_be_answered_is_refused_at_its_place(
    harness: Harness, body: dict[str, Any], status: int, param: str, says: str
) -> None:
    answer = await post(harness, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param), error
    assert says in error["message"]
    assert harness.backend.asked == []


async def test_numbers_that_no_server_can_be_sent_are_refused(harness: Harness) -> None:
    body = json.dumps({"model": MODEL, "messages": [USER], "wings": 0}).replace('"wings": 0', '"wings": 1e999')
    headers = {**ALICE, "content-type": "application/json"}
    answer = await harness.http.post("/v1/chat/completions", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert "out of range" in answer.json()["error"]["message"]


async def test_nothing_of_a_chat_is_stored(harness: Harness) -> None:
    harness.backend.plays(says("Hi"))
    made = (await post(harness)).json()
    key = made["id"].removeprefix("chatcmpl-")
    assert (await harness.http.get(f"/v1/responses/resp_{key}")).status_code == 404
