"""The tools of `benchmarks.adapters`, as each framework makes them, and its own way to call them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client, FastMCP
from langchain_core.tools import BaseTool, tool
from llama_index.core.tools import FunctionTool

import llm
from benchmarks.tools import TEXT, echo

ARGUMENTS = {"text": TEXT}
EXPRESSION = {"expression": "6*7"}

chain_tool: BaseTool = tool(echo)
index_tool = FunctionTool.from_defaults(echo)
server = FastMCP("bench")
server.tool(echo)


OwnCall = Callable[[], Awaitable[object]]
"""A framework's own call of its tool."""


@asynccontextmanager
async def llm_call() -> AsyncGenerator[OwnCall]:
    """llm: a function of its registry in a thread, as blocking code is called from asynchronous code."""
    function: Any = llm.get_tools()["simple_eval"].implementation
    yield lambda: asyncio.to_thread(function, **EXPRESSION)


@asynccontextmanager
async def chain_call() -> AsyncGenerator[OwnCall]:
    """LangChain, "Tools": a whole call, as an agent makes it."""
    whole: Any = {"type": "tool_call", "id": "c1", "name": "echo", "args": ARGUMENTS}
    yield lambda: chain_tool.ainvoke(whole)


@asynccontextmanager
async def index_call() -> AsyncGenerator[OwnCall]:
    """LlamaIndex, "Tools": `acall`."""
    yield lambda: index_tool.acall(**ARGUMENTS)


@asynccontextmanager
async def client_call() -> AsyncGenerator[OwnCall]:
    """FastMCP, "Client": the transport in memory, and the result as the protocol has it."""
    async with Client(server) as client:
        yield lambda: client.call_tool_mcp("echo", ARGUMENTS)
