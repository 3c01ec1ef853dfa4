"""The OpenAI Agents SDK: function tools."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, FunctionTool, RunContextWrapper, ToolOutputImage
from agents.tool_context import ToolContext
from tests.integrations.tools import zoo

from toolplug import CallContext, FunctionRegistry, Principal
from toolplug.integrations.openai_agents import tools

pytestmark = [pytest.mark.anyio, pytest.mark.framework]


def named(registry: FunctionRegistry, **options: Any) -> dict[str, FunctionTool]:
    context = CallContext(principal=Principal(subject="alice"))
    return {tool.name: tool for tool in tools(registry, context, **options)}


async def call(tool: FunctionTool, arguments: str = "{}") -> Any:
    run: ToolContext[None] = ToolContext(None, tool_name=tool.name, tool_call_id="1", tool_arguments=arguments)
    return await tool.on_invoke_tool(run, arguments)


async def test_calls_errors_and_images() -> None:
    async with zoo() as registry:
        listed = named(registry)
        assert await call(listed["feed"], '{"animal": "otter", "times": null}') == "otter fed 1"
        assert await call(listed["fail"]) == "the gate is closed"
        assert await call(listed["who"]) == "alice"
        assert '"animal" is required' in await call(listed["feed"])
        _, image = await call(listed["picture"])
    assert isinstance(image, ToolOutputImage)


async def test_schemas_are_as_they_are_and_strict_on_request() -> None:
    async with zoo() as registry:
        plain, strict = named(registry)["feed"], named(registry, strict=True)["feed"]
    assert (plain.strict_json_schema, plain.params_json_schema["required"]) == (False, ["animal"])
    assert (strict.strict_json_schema, strict.params_json_schema["required"]) == (True, ["animal", "times"])


async def test_a_tool_that_is_gone_is_no_longer_offered() -> None:
    async with zoo() as registry:
        agent = Agent(name="keeper", tools=[*named(registry).values()])
        registry.publish(registry.catalog.where(lambda tool: tool.definition.name == "feed"))
        assert [tool.name for tool in await agent.get_all_tools(RunContextWrapper(None))] == ["feed"]
