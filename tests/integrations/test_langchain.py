"""LangChain: tools that answer with messages."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from tests.integrations.tools import zoo

from toolplug import CallContext, FunctionRegistry, Principal
from toolplug.integrations.langchain import tools

pytestmark = [pytest.mark.anyio, pytest.mark.framework]


def named(registry: FunctionRegistry, **options: Any) -> dict[str, BaseTool]:
    context = CallContext(principal=Principal(subject="alice"))
    return {tool.name: tool for tool in tools(registry, context, **options)}


async def message(tool: BaseTool, **arguments: object) -> Any:
    return await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": arguments})


async def test_a_call_is_answered_by_a_message_with_the_value_as_artifact() -> None:
    async with zoo() as registry:
        listed = named(registry)
        fed = await message(listed["feed"], animal="otter", times=None)
        odd = await message(listed["odd"], config="a", callbacks="b", run_manager="c")
        who = await message(listed["who"])
    assert (fed.content, fed.status, fed.tool_call_id) == ("otter fed 1", "success", "1")
    assert odd.artifact == {"config": "a", "callbacks": "b", "run_manager": "c"}, "names that LangChain uses itself"
    assert who.content == "alice"


async def test_an_error_is_a_message_and_an_image_is_a_block() -> None:
    async with zoo() as registry:
        listed = named(registry)
        failed, wrong = await message(listed["fail"]), await message(listed["feed"])
        picture = await message(listed["picture"])
    gone = await message(listed["feed"], animal="otter")
    assert (failed.content, failed.status) == ("the gate is closed", "error")
    assert wrong.status == "error"
    assert '"animal" is required' in str(wrong.content)
    assert picture.content[1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert (gone.status, "not entered" in gone.content) == ("error", True)


async def test_the_model_is_given_the_tools_own_schema() -> None:
    async with zoo() as registry:
        feed = convert_to_openai_tool(named(registry)["feed"])["function"]
        assert feed["parameters"]["properties"]["animal"]["maxLength"] == 20
        assert feed["parameters"]["required"] == ["animal"]
        assert "asynchronous: use ainvoke" in named(registry)["who"].invoke({})


async def test_schemas_are_strict_on_request() -> None:
    async with zoo() as registry:
        tool = named(registry, strict=True)["feed"]
        feed = convert_to_openai_tool(tool, strict=True)["function"]
        assert (feed["strict"], feed["parameters"]["required"]) == (True, ["animal", "times"])
        assert feed["parameters"]["properties"]["times"]["type"] == ["integer", "null"]
        assert (await message(tool, animal="otter", times=None)).content == "otter fed 1"
