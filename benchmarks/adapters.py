"""Tools of other frameworks through toolplug's adapters, against the framework's own call: CPU time.

Each framework's own call is what its documentation shows for asynchronous code; for a blocking tool of `llm`, which has
no such call, it is the thread that asyncio gives it. The tools do next to nothing, so this is the worst case.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.calling import repeated
from benchmarks.frame import Batch, Row
from benchmarks.tools import TEXT
from toolplug import FunctionRegistry, ToolCall

TOOLS = "benchmarks.framework_tools"
"""Imported with the first of the rows: the frameworks take seconds."""


@asynccontextmanager
async def adapted(
    provider: str, settings: Mapping[str, object], name: str, arguments: Mapping[str, object]
) -> AsyncGenerator[Batch]:
    """Calls of a tool through an adapter: `module:Class`."""
    module, _, kind = provider.partition(":")
    made = getattr(import_module(module), kind)(settings)
    async with FunctionRegistry({"own": made}) as registry:
        yield await repeated(registry, ToolCall(id="c1", name=name, arguments=arguments))


@asynccontextmanager
async def own(name: str) -> AsyncGenerator[Batch]:
    """The framework's own calls."""
    async with getattr(import_module(TOOLS), name)() as batch:
        yield batch


def row(framework: str, against: str, calls: str, *ours: Any) -> Row:
    """One adapter and its framework."""
    return Row(
        name=f"tool of {framework}",
        against=against,
        ours=partial(adapted, *ours),
        other=partial(own, calls),
        hold=1.1,
        aim=1.05,
        pairs=101,
        batch_s=0.01,
    )


ECHO = ("echo", {"text": TEXT})

ROWS = (
    row(
        *("llm", "asyncio.to_thread", "llm_calls"),
        *("toolplug_llm.provider:LlmPlugin", {"plugin": "llm-tools-simpleeval"}),
        *("simple_eval", {"expression": "6*7"}),
    ),
    row(
        *("LangChain", "its ainvoke", "chain_calls"),
        *("toolplug_langchain.provider:LangChainTools", {"tool": f"{TOOLS}:chain_tool"}, *ECHO),
    ),
    row(
        *("LlamaIndex", "its acall", "index_calls"),
        *("toolplug_llama_index.provider:LlamaIndexTools", {"spec": f"{TOOLS}:index_tool"}, *ECHO),
    ),
    row(
        *("FastMCP", "its Client", "client_calls"),
        *("toolplug_fastmcp.provider:FastMcpServer", {"server": f"{TOOLS}:server"}, *ECHO),
    ),
)
