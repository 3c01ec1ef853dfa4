"""Lists of tools that stay, in adapters: a conversation's view is the executor that they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.search.changing_tools import Changing, SentBytes, Wanted, open_changing

from toolplug.integrations import langchain, pydantic_ai
from toolplug.search.conversation import ConversationTools

pytestmark = [pytest.mark.anyio, pytest.mark.framework, pytest.mark.requirement("I34-lists-that-stay")]


def through_call_tool(wanted: Sequence[Wanted], view: ConversationTools) -> list[Wanted]:
    """The calls, those of tools that are not listed through `call_tool`: a framework knows no others."""
    return [each._replace(through=each.through or not view.can_execute(each.name)) for each in wanted]


TURNS = 100


def check_answers(wanted: Sequence[Wanted], answers: Sequence[str]) -> None:
    """Check that each call got its answer, or was refused because of its arguments."""
    for each, answer in zip(wanted, answers, strict=True):
        assert answer.startswith(each.answer) if each.answer else "required" in answer, (each, answer)


async def test_pydantic_ai_is_sent_one_prefix() -> None:
    sent, called = SentBytes(), list[str]()
    waiting: list[Wanted] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tools = [[tool.name, tool.description, tool.parameters_json_schema] for tool in info.function_tools]
        sent.add(tools, [[type(part).__name__, *_shown(part)] for each in messages for part in each.parts])
        if not waiting:
            return ModelResponse([TextPart("done")])
        name, arguments = waiting.pop(0).sent
        return ModelResponse([ToolCallPart(name, arguments)])

    async with open_changing() as changing:
        view = changing.tools.conversation()
        agent = Agent(FunctionModel(model), toolsets=[pydantic_ai.toolset(view, retries=3)])
        history: list[ModelMessage] = []
        for turn in range(TURNS):
            wanted = await changing.change(turn)
            waiting += through_call_tool(wanted, view)
            result = await agent.run(f"turn {turn}\n\n{view.changes()}", message_history=history)
            answers = [part for each in result.new_messages() for part in each.parts if "tool-return" in part.part_kind]
            called += [str(part.content) for part in answers]  # type: ignore[union-attr]
            check_answers(wanted, called[-len(wanted) :])
            history = result.all_messages()
    assert sent.requests > TURNS
    assert sent.changed_prefixes == 0


def _shown(part: Any) -> list[str]:
    """What a model's API is sent of a part."""
    return [str(getattr(part, name, "")) for name in ("tool_name", "args", "content")]


async def test_langchain_is_sent_one_prefix() -> None:
    async with open_changing() as changing:
        view = changing.tools.conversation()
        await _converse(changing, view, langchain.tools(view))


async def _converse(changing: Changing, view: ConversationTools, tools: Sequence[BaseTool]) -> None:
    """The loop of an agent of LangChain, whose model is sent the tools once and the messages that grow."""
    sent, messages = SentBytes(), list[BaseMessage]()
    by_name = {tool.name: tool for tool in tools}
    for turn in range(TURNS):
        wanted = await changing.change(turn)
        messages.append(HumanMessage(f"turn {turn}\n\n{view.changes()}"))
        sent.add([convert_to_openai_tool(tool) for tool in tools], convert_to_openai_messages(messages))
        made = through_call_tool(wanted, view)
        calls: list[Any] = [
            {"type": "tool_call", "id": f"{turn}_{place}", "name": each.sent[0], "args": each.sent[1]}
            for place, each in enumerate(made)
        ]
        answers = [await by_name[call["name"]].ainvoke(call) for call in calls]
        check_answers(wanted, [str(answer.content) for answer in answers])
        messages += [AIMessage("", tool_calls=calls), *answers]
    assert (sent.requests, sent.changed_prefixes) == (TURNS, 0)
