"""pydantic-ai: a live toolset."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.messages import BinaryContent, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.integrations.tools import zoo

from toolplug import CallContext, Principal
from toolplug.execution.executor import ToolExecutor
from toolplug.integrations.pydantic_ai import toolset

pytestmark = [pytest.mark.anyio, pytest.mark.framework]


async def run(executor: ToolExecutor, *turns: ToolCallPart, strict: bool = False) -> tuple[list[object], list[str]]:
    """The parts that answer these calls, one a turn, and the names that the model was offered at the last."""
    waiting, offered = list(turns), list[str]()

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered[:] = [tool.name for tool in info.function_tools]
        return ModelResponse([waiting.pop(0) if waiting else TextPart("done")])

    context = CallContext(principal=Principal(subject="alice"))
    agent = Agent(FunctionModel(model), toolsets=[toolset(executor, context, strict=strict)])
    result = await agent.run("Go")
    assert result.output == "done"
    parts: Sequence[object] = [part for message in result.all_messages() for part in message.parts]
    return [part for part in parts if isinstance(part, ToolReturnPart | UserPromptPart)][1:], offered


async def test_calls_reach_the_tool_as_the_caller() -> None:
    async with zoo() as tools:
        parts, offered = await run(tools, ToolCallPart("who", {}), ToolCallPart("odd", dict.fromkeys(ODD, "x")))
    assert [part.content for part in parts if isinstance(part, ToolReturnPart)] == [
        "alice",
        '{"config":"x","callbacks":"x","run_manager":"x"}',
    ]
    assert offered == ["feed", "odd", "fail", "picture", "who"]


ODD = ("config", "callbacks", "run_manager")


async def test_invalid_arguments_are_to_be_corrected_and_errors_are_not() -> None:
    async with zoo() as tools:
        retry, failed = (await run(tools, ToolCallPart("feed", {"animal": 1}), ToolCallPart("fail", {})))[0]
    assert isinstance(retry, ToolReturnPart)
    assert retry.outcome == "retried"
    assert "/animal: must be of type" in str(retry.content)
    assert isinstance(failed, ToolReturnPart)
    assert failed.outcome == "failed"
    assert "the gate is closed" in str(failed.content)


async def test_an_image_reaches_the_model_and_a_null_is_absent() -> None:
    async with zoo() as tools:
        feed = ToolCallPart("feed", {"animal": "otter", "times": None})
        fed, pixel, image = (await run(tools, feed, ToolCallPart("picture", {}), strict=True))[0]
    assert isinstance(fed, ToolReturnPart)
    assert fed.content == "otter fed 1"
    assert isinstance(pixel, ToolReturnPart)
    assert isinstance(image, UserPromptPart)
    assert [type(item) for item in image.content] == [BinaryContent]


async def test_tools_come_and_go_during_a_run() -> None:
    async with zoo() as tools:
        offered: list[list[str]] = []

        def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            offered.append([tool.name for tool in info.function_tools])
            if len(offered) == 1:
                tools.publish(tools.catalog.where(lambda tool: tool.definition.name == "feed"))
                return ModelResponse([ToolCallPart("feed", {"animal": "otter"})])
            return ModelResponse([TextPart("done")])

        await Agent(FunctionModel(model), toolsets=[toolset(tools)]).run("Go")
    assert [len(names) for names in offered] == [5, 1]
