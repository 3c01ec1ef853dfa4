"""A loop of one's own: what each model's SDK takes, and the messages that answer its calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import MessageParam, ToolParam
from google.genai import types as gemini
from openai.types.chat import ChatCompletionMessage, ChatCompletionToolMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, Response
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import TypeAdapter
from tests.integrations.tools import PIXEL, Zoo, zoo

from toolplug import CallContext, Principal

pytestmark = [pytest.mark.anyio, pytest.mark.framework]

NAMES = ["feed", "odd", "fail", "picture", "who"]


def chat(*calls: tuple[str, str, object]) -> Any:
    made = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, name, arguments in calls
    ]
    return ChatCompletionMessage.model_validate({"role": "assistant", "content": None, "tool_calls": made})


async def test_openais_chat_takes_the_tools_and_the_answers() -> None:
    async with zoo() as tools:
        listed = TypeAdapter(list[ChatCompletionToolParam]).validate_python(tools.for_openai())
        assert [item["function"]["name"] for item in listed] == NAMES
        message = chat(("1", "feed", {"animal": "otter"}), ("2", "fail", {}), ("3", "nothing", {}))
        answers = await tools.answer(message.tool_calls)
        TypeAdapter(list[ChatCompletionToolMessageParam]).validate_python(answers)
        assert answers == [
            {"role": "tool", "tool_call_id": "1", "content": "otter fed 1"},
            {"role": "tool", "tool_call_id": "2", "content": "the gate is closed"},
            {"role": "tool", "tool_call_id": "3", "content": 'no builtin provider handles tool "nothing"'},
        ]
        assert answers == await tools.answer(message.model_dump()["tool_calls"]), "objects or their JSON"
        assert await tools.answer(None) == []


async def test_openais_responses_takes_the_tools_and_the_answers() -> None:
    output = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "picture", "arguments": "{}"},
        {"type": "mcp_call", "id": "m", "name": "other", "arguments": "{}", "server_label": "elsewhere"},
        {"type": "function_call", "call_id": "2", "name": "who", "arguments": ""},
    ]
    response = Response.model_construct(output=TypeAdapter(Response).validate_python(_response(output)).output)
    async with zoo() as tools:
        TypeAdapter(list[FunctionToolParam]).validate_python(tools.for_openai("responses"))
        answers = await tools.answer(response.output, CallContext(principal=Principal(subject="alice")))
    TypeAdapter(list[FunctionCallOutput]).validate_python(answers)
    picture, who = answers
    assert picture["output"] == [
        {"type": "input_text", "text": "a pixel\n[image image/png]"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
    ]
    assert (who["call_id"], who["output"]) == ("2", "alice")


async def test_anthropic_takes_the_tools_and_the_answers() -> None:
    content = [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "1", "name": "picture", "input": {}},
        {"type": "tool_use", "id": "2", "name": "fail", "input": {}},
    ]
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = AnthropicMessage.model_validate(
        {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
        | {"stop_reason": "tool_use", "stop_sequence": None}
    )
    async with zoo() as tools:
        TypeAdapter(list[ToolParam]).validate_python(tools.for_anthropic())
        (answer,) = await tools.answer(message.content)
    TypeAdapter(MessageParam).validate_python(answer)
    picture, failed = answer["content"]
    assert picture["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert (picture["is_error"], failed["is_error"]) == (False, True)


async def test_gemini_takes_the_tools_and_the_answers() -> None:
    content = gemini.Content.model_validate(
        {"role": "model", "parts": [{"functionCall": {"name": "feed", "args": {"animal": "otter", "times": None}}}]}
    )
    async with zoo() as tools:
        (listed,) = [gemini.Tool.model_validate(tool) for tool in tools.for_gemini()]
        assert listed.function_declarations is not None
        assert [item.name for item in listed.function_declarations] == NAMES
        calls = [part.function_call for part in content.parts or []]
        (answer,) = await tools.answer(calls)
    (part,) = gemini.Content.model_validate(answer).parts or []
    assert part.function_response is not None
    assert part.function_response.response == {"output": "otter fed 1"}


async def test_the_calls_of_one_turn_run_side_by_side() -> None:
    async with zoo() as tools:
        Zoo.most_together = 0
        message = chat(*((str(n), "feed", {"animal": "otter"}) for n in range(3)))
        assert len(await tools.answer(message.tool_calls)) == 3
        assert Zoo.most_together == 3


async def test_strict_mode_rewrites_the_schema_and_takes_null_for_absent() -> None:
    async with zoo() as tools:
        feed = tools.for_openai(strict=True)[0]["function"]
        assert feed["strict"] is True
        assert feed["parameters"]["required"] == ["animal", "times"]
        assert feed["parameters"]["properties"]["times"]["type"] == ["integer", "null"]
        (answer,) = await tools.answer(chat(("1", "feed", {"animal": "otter", "times": None})).tool_calls)
        assert answer["content"] == "otter fed 1"
        (refused,) = await tools.answer(chat(("1", "feed", {"animal": None})).tool_calls)
        assert "/animal" in refused["content"], "a required one may not be null"


async def test_strict_mode_of_anthropic() -> None:
    async with zoo() as tools:
        feed, odd, *_ = TypeAdapter(list[ToolParam]).validate_python(tools.for_anthropic(strict=True))
        assert (feed["strict"], odd["strict"]) == (True, True)
        assert feed["input_schema"]["required"] == ["animal", "times"]
        assert "strict" not in tools.for_anthropic()[0]


async def test_what_is_no_function_call_is_refused_in_words() -> None:
    async with zoo() as tools:
        with pytest.raises(ValueError, match="'custom' is no function call; answer it yourself"):
            await tools.answer([{"id": "1", "type": "custom", "custom": {"name": "a", "input": "b"}}])
        with pytest.raises(TypeError, match=r"give message\.tool_calls or response\.output"):
            await tools.answer([1])


def _response(output: list[dict[str, object]]) -> dict[str, object]:
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
