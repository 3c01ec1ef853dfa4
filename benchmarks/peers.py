"""Other libraries' own way to call a tool in the process, and to list tools, as their documentation has it.

All have the same trivial tool, and each side calls the documented entry with the least around it: no client and no
transport. Where a call takes an object that a program would keep between calls, it is made once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import repeat
from types import FunctionType

from fastmcp import FastMCP
from langchain_core.tools import tool
from mcp.server import MCPServer
from mcp_types import CallToolResult, ListToolsResult, TextContent
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness import CodeMode

from benchmarks.frame import Batch, timed
from benchmarks.tools import TEXT, echo


@dataclass(slots=True)
class Wanted:
    """How many calls a run of an agent makes, and the seconds that they took."""

    calls: int
    seconds: float = 0.0


@asynccontextmanager
async def fastmcp_call() -> AsyncGenerator[Batch]:
    """FastMCP, "python-sdk: fastmcp.server.server": `call_tool`, "the public API for executing tools"."""
    server = FastMCP("bench")
    server.tool(echo)
    arguments = {"text": TEXT}
    assert (await server.call_tool("echo", arguments)).structured_content == {"result": TEXT}

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await server.call_tool("echo", arguments)

    yield timed(run)


@asynccontextmanager
async def mcp_call() -> AsyncGenerator[Batch]:
    """MCP Python SDK, "API reference: mcp.server.mcpserver": `MCPServer.call_tool`."""
    server = MCPServer("bench")
    server.add_tool(echo)
    arguments = {"text": TEXT}
    result = await server.call_tool("echo", arguments)
    assert isinstance(result, CallToolResult)
    assert result.content == [TextContent(text=TEXT)]

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await server.call_tool("echo", arguments)

    yield timed(run)


@asynccontextmanager
async def pydantic_ai_call() -> AsyncGenerator[Batch]:
    """pydantic-ai, "API: RunContext.tool_manager", for toolsets that call tools themselves: `ToolManager.handle_call`.

    It is there within a run of an agent only, so every batch is such a run, of which the calls alone are timed.
    """
    agent = Agent(TestModel(call_tools=["repeated"]), deps_type=Wanted)
    agent.tool_plain(echo)
    call = ToolCallPart("echo", {"text": TEXT}, tool_call_id="c1")

    @agent.tool
    async def repeated(context: RunContext[Wanted]) -> str:  # pyright: ignore[reportUnusedFunction]
        manager = context.tool_manager
        assert manager is not None
        assert await manager.handle_call(call) == TEXT

        async def run(n: int) -> None:
            for _ in repeat(None, n):
                await manager.handle_call(call)

        context.deps.seconds = await timed(run)(context.deps.calls)
        return "done"

    async def batch(n: int) -> float:
        wanted = Wanted(calls=n)
        await agent.run("go", deps=wanted)
        return wanted.seconds

    yield batch


@asynccontextmanager
async def harness_script(
    code: str, worked: Callable[[Callable[[], Awaitable[object]]], Batch]
) -> AsyncGenerator[Batch]:
    """pydantic-ai-harness, "Code Mode": `Agent(…, capabilities=[CodeMode()])`, whose script calls `echo`.

    The script is run by a tool of the same run of the agent, so that the run itself is not measured. Each one begins
    anew, since scripts that go on from the one before are not checked. `worked` makes a batch of what it is given.
    """
    agent = Agent(TestModel(call_tools=["repeated"]), deps_type=Wanted, capabilities=[CodeMode(tools=["echo"])])
    agent.tool_plain(echo)
    call = ToolCallPart("run_code", {"code": code, "restart": True}, tool_call_id="c1")

    @agent.tool
    async def repeated(context: RunContext[Wanted]) -> str:  # pyright: ignore[reportUnusedFunction]
        manager = context.tool_manager
        assert manager is not None
        batch = worked(lambda: manager.handle_call(call))
        await batch(1)
        context.deps.seconds = await batch(context.deps.calls)
        return "done"

    async def batch(n: int) -> float:
        wanted = Wanted(calls=n)
        await agent.run("go", deps=wanted)
        return wanted.seconds

    yield batch


@asynccontextmanager
async def langchain_call() -> AsyncGenerator[Batch]:
    """LangChain, "Reference: BaseTool": `ainvoke` with the arguments."""
    structured = tool(echo)
    arguments: dict[str, object] = {"text": TEXT}
    assert await structured.ainvoke(arguments) == TEXT

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await structured.ainvoke(arguments)

    yield timed(run)


def many_functions(count: int) -> list[Callable[..., object]]:
    """As many functions with the trivial tool's body, each under its own name."""
    functions: list[Callable[..., object]] = []
    for index in range(count):
        function = FunctionType(echo.__code__, globals(), f"tool_{index}")
        function.__annotations__ = dict(echo.__annotations__)
        function.__doc__ = echo.__doc__
        functions.append(function)
    return functions


@asynccontextmanager
async def fastmcp_listing() -> AsyncGenerator[Batch]:
    """FastMCP, "python-sdk: fastmcp.server.server": `list_tools`, made into the answer of `tools/list`."""
    server = FastMCP("bench")
    for function in many_functions(1000):
        server.tool(function)

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            tools = await server.list_tools()
            ListToolsResult(tools=[each.to_mcp_tool() for each in tools]).model_dump_json(
                by_alias=True, exclude_none=True
            )

    yield timed(run)
