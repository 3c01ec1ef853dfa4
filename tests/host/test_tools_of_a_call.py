"""`context.tools`: a tool calls the tools of its caller, under the caller's own rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from httpx2 import ASGITransport, AsyncClient

from toolplug import CallContext, FunctionRegistry, Principal, ToolCall, ToolStatus, open_host, tool
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

ADA = Principal("ada", scopes=frozenset({"tools:call"}))
BEN = Principal("ben", scopes=frozenset({"tools:read"}))


SHOP = """
from toolplug import CallContext, FunctionProvider, ToolCall, tool


class Shop(FunctionProvider):
    @tool
    async def order(self, context: CallContext) -> str:
        "Order."
        return f"for {context.principal.subject}"

    @tool
    def blocked(self) -> str:
        "Do what nobody may."
        return "done"

    @tool
    async def run(self, name: str, context: CallContext) -> str:
        "Call another tool."
        result = await context.tools.execute(ToolCall("inner", name, {"name": name} if name == "run" else {}))
        return f"{result.status}: {result.output}"

    @tool
    async def names(self, context: CallContext) -> list[str]:
        "List the caller's tools."
        return list(context.tools.catalog)
"""
FILE = """
    providers:
      shop: {enabled: true, type: "./shop.py:Shop", tools: {order: ask, blocked: deny}}
      more: {enabled: true, type: "./shop.py:Shop"}
    toolsets:
      one: {prefix: one, from: provider:shop}
      two: {prefix: two, from: provider:more}
    agents: {clerk: {toolsets: [one, two]}}
"""


@tool
async def order(item: str, context: CallContext) -> str:
    """Order an item."""
    return f"{item} for {context.principal.subject}"


@tool
async def order_as_ben(context: CallContext) -> str:
    """Try to order as somebody else."""
    return (await context.tools.execute(ToolCall("inner", "order", {"item": "tea"}), CallContext(BEN))).output


@tool
async def wait() -> None:
    """Wait longer than anybody."""
    await asyncio.sleep(60)


@tool
async def wait_within(context: CallContext) -> str:
    """Call a tool that waits longer than its caller allows."""
    return str((await context.tools.execute(ToolCall("inner", "wait", {}), CallContext())).status)


@tool
def names(context: CallContext) -> list[str]:
    """List the caller's tools."""
    return list(context.tools.catalog)


TOOLS = [order, order_as_ben, wait, wait_within, names]


@pytest.mark.requirement("I37-context-tools")
async def test_a_tool_calls_others_as_its_caller_and_nobody_else() -> None:
    async with FunctionRegistry(TOOLS) as registry:
        context = CallContext(ADA)
        assert (await registry.call("order_as_ben", {}, context)).output == "tea for ada"
        assert (await registry.call("names", {}, context)).structured == list(registry.catalog)


@pytest.mark.requirement("I37-context-tools")
async def test_a_call_from_within_a_tool_keeps_its_policy(config: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    async with open_host(config(FILE), environ={}) as host:
        tools = host.executor_for(ADA)
        asked = await tools.call("run", name="order")
        assert asked.output.startswith("denied: ")
        (waiting,) = await host.approvals.waiting(ADA.tenant)
        assert (waiting.tool, waiting.subject) == ("order", "ada")
        assert (await tools.call("run", name="blocked")).output.startswith("denied: ")
        assert (await tools.call("run", name="nothing")).output.startswith("unknown_tool: ")


@pytest.mark.requirement("I37-context-tools")
async def test_a_call_from_within_a_tool_ends_with_its_caller() -> None:
    async with FunctionRegistry(TOOLS) as registry:
        deadline = asyncio.get_running_loop().time() + 0.05
        result = await registry.call("wait_within", {}, CallContext(deadline=deadline))
        assert result.status is ToolStatus.TIMEOUT


@pytest.mark.requirement("I37-context-tools")
async def test_what_a_request_leaves_out_stays_left_out_within_its_tools(
    config: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    async with open_host(config(FILE), environ={}) as host:
        transport = ASGITransport(create_app(host), client=("127.0.0.1", 1))
        async with AsyncClient(transport=transport, base_url="http://host") as client:
            body = {"name": "one.names", "arguments": {}, "agent": "clerk"}
            whole = await client.post("/v1/tool-calls", json=body)
            part = await client.post("/v1/tool-calls", json={**body, "toolsets": ["one"]})
    assert {name.partition(".")[0] for name in whole.json()["structured"]} == {"one", "two"}
    assert {name.partition(".")[0] for name in part.json()["structured"]} == {"one"}


@pytest.mark.requirement("I37-context-tools")
def test_a_context_of_no_running_tool_says_where_tools_are() -> None:
    with pytest.raises(LookupError, match=r"host\.executor_for"):
        _ = CallContext(ADA).tools
