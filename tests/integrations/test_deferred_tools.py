"""Deferred tools in the adapters, and their calls in the messages of the model APIs' own SDKs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agents.tool_context import ToolContext
from anthropic.types import Message, MessageParam
from google.genai import types as gemini
from openai.types.chat import ChatCompletionMessage, ChatCompletionToolMessageParam
from openai.types.responses import Response
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import TypeAdapter
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.search.conftest import OpenMany, many_package, open_many
from tests.search.many_provider import name_of

from toolplug import FunctionRegistry, Principal, ToolExecutor
from toolplug.execution.executor import ModelTools
from toolplug.integrations import langchain, llama_index, openai_agents, pydantic_ai

__all__ = ["many_package", "open_many"]

pytestmark = [pytest.mark.anyio, pytest.mark.framework, pytest.mark.requirement("C-9-tool-search")]

CALLER = Principal(scopes=frozenset({"tools:call"}))
TWO = ["search_tools", "call_tool"]
SEARCH = {"query": "merge the branch", "limit": 1}
THROUGH = {"name": name_of(37), "arguments": {"id": "7"}}
DID = f'{{"did":"{name_of(37)}","of":"anonymous","id":"7"}}\npart'


@asynccontextmanager
async def many(open_many: OpenMany) -> AsyncIterator[ModelTools]:
    async with open_many({"count": 40, "tools": {name_of(0): {"offer": "always"}}}) as host:
        yield host.executor_for(CALLER)


async def test_a_live_toolset_offers_the_search_and_the_found_tool_is_called(open_many: OpenMany) -> None:
    offered: list[list[str]] = []
    turns = [ToolCallPart("search_tools", SEARCH), ToolCallPart("call_tool", THROUGH), TextPart("done")]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append([tool.name for tool in info.function_tools])
        return ModelResponse([turns[len(offered) - 1]])

    async with many(open_many) as tools:
        result = await Agent(FunctionModel(model), toolsets=[pydantic_ai.toolset(tools)]).run("Merge it")
    assert offered == [[name_of(0), *TWO]] * 3
    found, did = [
        part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)
    ]
    assert [tool["name"] for tool in json.loads(str(found.content))["tools"]] == [name_of(37)]
    assert (did.tool_name, did.content) == ("call_tool", DID)


async def test_the_lists_of_the_other_frameworks_have_the_search_too(open_many: OpenMany) -> None:
    async with many(open_many) as tools:
        chain = {tool.name: tool for tool in langchain.tools(tools)}
        index = {tool.metadata.get_name(): tool for tool in llama_index.tools(tools)}
        agents = {tool.name: tool for tool in openai_agents.tools(tools, strict=True)}
        assert [*chain] == [*index] == [*agents] == [name_of(0), *TWO]
        call: ToolContext[None] = ToolContext(None, tool_name="call_tool", tool_call_id="1", tool_arguments="")
        answers = [
            await chain["call_tool"].ainvoke(THROUGH),
            (await index["call_tool"].acall(**THROUGH)).content,
            await agents["call_tool"].on_invoke_tool(call, json.dumps(THROUGH)),
        ]
        found = await agents["search_tools"].on_invoke_tool(call, json.dumps({**SEARCH, "limit": None}))
    assert answers == [DID] * 3
    assert name_of(37) in str(found)


async def test_frameworks_are_not_given_the_empty_list_of_a_registry_that_is_not_entered() -> None:
    asks: list[Callable[[ToolExecutor], object]] = [langchain.tools, llama_index.tools, openai_agents.tools]
    for ask in asks:
        with pytest.raises(RuntimeError, match="its registry is not entered"):
            ask(FunctionRegistry([]))


async def test_calls_of_chat_completions_and_gemini_are_answered_under_their_own_names(open_many: OpenMany) -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "search_tools", "arguments": json.dumps(SEARCH)}},
        {"id": "2", "type": "function", "function": {"name": "call_tool", "arguments": json.dumps(THROUGH)}},
    ]
    message = ChatCompletionMessage.model_validate({"role": "assistant", "content": None, "tool_calls": calls})
    parts = [
        {"functionCall": {"name": "search_tools", "args": SEARCH}},
        {"functionCall": {"name": "call_tool", "args": THROUGH}},
    ]
    content = gemini.Content.model_validate({"role": "model", "parts": parts})
    async with many(open_many) as tools:
        chat = await tools.answer(message.tool_calls)
        (gem,) = await tools.answer(part.function_call for part in content.parts or [])
    TypeAdapter(list[ChatCompletionToolMessageParam]).validate_python(chat)
    assert [(each["tool_call_id"], name_of(37) in each["content"]) for each in chat] == [("1", True), ("2", True)]
    answers = [part.function_response for part in gemini.Content.model_validate(gem).parts or []]
    assert [answer and answer.name for answer in answers] == TWO, "the API joins answers to calls by their names"


async def test_the_searches_of_the_apis_themselves_are_passed_over(open_many: OpenMany) -> None:
    result = {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": name_of(37)}],
    }
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "tool_search_tool_bm25", "input": {"query": "merge"}},
        {"type": "tool_search_tool_result", "tool_use_id": "s", "content": result},
        {"type": "tool_use", "id": "1", "name": name_of(37), "input": {"id": "7"}},
    ]
    usage = {"input_tokens": 1, "output_tokens": 1}
    claude = Message.model_validate(
        {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks, "usage": usage}
        | {"stop_reason": "tool_use", "stop_sequence": None}
    )
    async with many(open_many) as tools:
        (answered,) = await tools.answer(claude.content)
        (output,) = await tools.answer(searched("server").output)
        with pytest.raises(ValueError, match="execution: client is your own search; answer it yourself"):
            await tools.answer(searched("client").output)
    TypeAdapter(MessageParam).validate_python(answered)
    assert [block["tool_use_id"] for block in answered["content"]] == ["1"]
    TypeAdapter(FunctionCallOutput).validate_python(output)
    assert (output["call_id"], name_of(37) in output["output"]) == ("c", True)


def searched(execution: str) -> Response:
    """A response in which OpenAI's model has searched for tools, and calls what it has found."""
    of = {"execution": execution, "call_id": None, "status": "completed"}
    output = [
        {"type": "tool_search_call", "id": "s", "arguments": {"paths": ["merge"]}, **of},
        {"type": "tool_search_output", "id": "o", "tools": [], **of},
        {"type": "function_call", "call_id": "c", "name": name_of(37), "arguments": '{"id": "7"}'},
    ]
    fields: dict[str, Any] = {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": output}
    return Response.model_validate({**fields, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})
