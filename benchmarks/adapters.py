"""Tools of other frameworks through toolplug's adapters: CPU time.

Each framework's own call is what its documentation shows for asynchronous code; for a blocking tool of `llm`, which has
no such call, it is the thread that asyncio gives it. The tools do next to nothing, so this is the worst case.

Each has two rows: against the framework's own call, whose hold is missed, and against a tool of toolplug that awaits
this very call. The second says what the adapter costs; the rest of the first is the price of being called by a host.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import Any

from benchmarks.calling import repeated
from benchmarks.frame import Batch, Row, timed
from benchmarks.tools import TEXT
from toolplug import FunctionRegistry, ToolCall, tool

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
    async with getattr(import_module(TOOLS), name)() as call:

        async def run(n: int) -> None:
            for _ in repeat(None, n):
                await call()

        yield timed(run)


@asynccontextmanager
async def wrapped(name: str, arguments: Mapping[str, object]) -> AsyncGenerator[Batch]:
    """Calls of a tool of toolplug that awaits the framework's own call."""
    async with getattr(import_module(TOOLS), name)() as call:

        @tool
        async def await_call(text: str) -> str:
            "Await the call of the framework."
            return str(await call())

        async with FunctionRegistry([await_call]) as registry:
            text = " ".join(map(str, arguments.values()))
            yield await repeated(registry, ToolCall(id="c1", name="await_call", arguments={"text": text}))


def rows(framework: str, against: str, calls: str, *ours: Any) -> tuple[Row, Row]:
    """One adapter: by the framework's own call, and by a tool that awaits it."""
    first = Row(
        name=f"tool of {framework}",
        against=against,
        ours=partial(adapted, *ours),
        other=partial(own, calls),
        pairs=101,
        batch_s=0.01,
        hold=1.1,
        aim=1.05,
    )
    awaits = f"a tool that awaits {against}"
    return first, replace(first, against=awaits, other=partial(wrapped, calls, ours[-1]))


ECHO = ("echo", {"text": TEXT})

ROWS = (
    *rows(
        *("llm", "asyncio.to_thread", "llm_call"),
        *("toolplug_llm.provider:LlmPlugin", {"plugin": "llm-tools-simpleeval"}),
        *("simple_eval", {"expression": "6*7"}),
    ),
    *rows(
        *("LangChain", "its ainvoke", "chain_call"),
        *("toolplug_langchain.provider:LangChainTools", {"tool": f"{TOOLS}:chain_tool"}, *ECHO),
    ),
    *rows(
        *("LlamaIndex", "its acall", "index_call"),
        *("toolplug_llama_index.provider:LlamaIndexTools", {"spec": f"{TOOLS}:index_tool"}, *ECHO),
    ),
    *rows(
        *("FastMCP", "its Client", "client_call"),
        *("toolplug_fastmcp.provider:FastMcpServer", {"server": f"{TOOLS}:server"}, *ECHO),
    ),
)
