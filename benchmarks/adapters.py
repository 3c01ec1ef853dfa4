"""Tools of other frameworks through toolplug's adapters, against the framework's own call: CPU time.

Each framework's own call is what its documentation shows for asynchronous code; for a blocking tool of `llm`, which has
no such call, it is the thread that asyncio gives it. The tools do next to nothing, so this is the worst case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import repeat
from typing import Any

from fastmcp import Client, FastMCP
from langchain_core.tools import BaseTool, tool
from llama_index.core.tools import FunctionTool

import llm
from benchmarks.calling import repeated
from benchmarks.frame import Batch, Row, timed
from benchmarks.tools import TEXT, echo
from toolplug import FunctionProvider, FunctionRegistry, ToolCall
from toolplug_fastmcp.provider import FastMcpServer
from toolplug_langchain.provider import LangChainTools
from toolplug_llama_index.provider import LlamaIndexTools
from toolplug_llm.provider import LlmPlugin

Side = Callable[[], AbstractAsyncContextManager[Batch]]
ARGUMENTS = {"text": TEXT}

chain_tool: BaseTool = tool(echo)
index_tool = FunctionTool.from_defaults(echo)
server = FastMCP("bench")
server.tool(echo)


def adapted(kind: type[FunctionProvider], settings: Mapping[str, object]) -> Side:
    """Calls through an adapter."""

    @asynccontextmanager
    async def batch() -> AsyncGenerator[Batch]:
        async with FunctionRegistry({"own": kind(settings)}) as registry:
            yield await repeated(registry, ToolCall(id="c1", name="echo", arguments=ARGUMENTS))

    return batch


def own(call: Callable[[], Awaitable[object]]) -> Side:
    """The framework's own calls."""

    @asynccontextmanager
    async def batch() -> AsyncGenerator[Batch]:
        assert TEXT in str(await call())

        async def run(n: int) -> None:
            for _ in repeat(None, n):
                await call()

        yield timed(run)

    return batch


async def chain_call() -> object:
    """LangChain, "Tools": a whole call, as an agent makes it."""
    whole: Any = {"type": "tool_call", "id": "c1", "name": "echo", "args": ARGUMENTS}
    return await chain_tool.ainvoke(whole)


async def index_call() -> object:
    """LlamaIndex, "Tools": `acall`."""
    return await index_tool.acall(**ARGUMENTS)


@asynccontextmanager
async def client_calls() -> AsyncGenerator[Batch]:
    """FastMCP, "Client": the transport in memory, and the result as the protocol has it."""
    async with Client(server) as client:

        async def run(n: int) -> None:
            for _ in repeat(None, n):
                await client.call_tool_mcp("echo", ARGUMENTS)

        yield timed(run)


EXPRESSION = {"expression": "6*7"}


@asynccontextmanager
async def llm_adapted() -> AsyncGenerator[Batch]:
    """The function of llm-tools-simpleeval through the adapter."""
    async with FunctionRegistry({"own": LlmPlugin({"plugin": "llm-tools-simpleeval"})}) as registry:
        yield await repeated(registry, ToolCall(id="c1", name="simple_eval", arguments=EXPRESSION))


@asynccontextmanager
async def llm_own() -> AsyncGenerator[Batch]:
    """The same function of `llm`'s registry, in a thread, as blocking code is called from asynchronous code."""
    function: Any = llm.get_tools()["simple_eval"].implementation

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await asyncio.to_thread(function, **EXPRESSION)

    yield timed(run)


def row(name: str, against: str, ours: Any, other: Any) -> Row:
    return Row(name=name, against=against, ours=ours, other=other, hold=1.1, aim=1.05, pairs=101, batch_s=0.01)


ROWS = (
    row("tool of llm", "asyncio.to_thread", llm_adapted, llm_own),
    row(
        "tool of LangChain",
        "its ainvoke",
        adapted(LangChainTools, {"tool": "benchmarks.adapters:chain_tool"}),
        own(chain_call),
    ),
    row(
        "tool of LlamaIndex",
        "its acall",
        adapted(LlamaIndexTools, {"spec": "benchmarks.adapters:index_tool"}),
        own(index_call),
    ),
    row(
        "tool of FastMCP", "its Client", adapted(FastMcpServer, {"server": "benchmarks.adapters:server"}), client_calls
    ),
)
