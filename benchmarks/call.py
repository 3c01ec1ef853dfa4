"""One call in the process, with every default knob on: what it costs beside a bare await and beside peers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat

from benchmarks import bare, peers
from benchmarks.calling import ALICE, calling, repeated, trivial
from benchmarks.frame import MILLISECONDS, Batch, Row, timed
from benchmarks.providers import Many, Tardy, Trivial
from benchmarks.tools import SEARCH, TEXT
from toolplug import CallContext, FunctionRegistry, ToolCall, ToolStatus
from toolplug.catalog.definition import Note
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.live import MergedExecutor
from toolplug.execution.run import UnknownCalls

DEADLINE_S = 0.02
UNKNOWN = UnknownCalls(CallAccounting().counters("_unknown", "_unknown"))

_PYTHON = sys.version_info[:2]
_TRIVIAL_HOLD, _TRIVIAL_AIM = {(3, 11): (11, 9), (3, 12): (9, 8)}.get(_PYTHON, (10, 8.5))
_SUSPENDING_HOLD, _SUSPENDING_AIM = {(3, 11): (9, 4), (3, 12): (5.8, 4.5)}.get(_PYTHON, (6.3, 5))
"""A task runs each call eagerly from 3.12 on; 3.11 has a runner of its own."""


@asynccontextmanager
async def calling_from_text() -> AsyncGenerator[Batch]:
    """Make call and context anew each time, with the arguments as the text that a model writes."""
    arguments = json.dumps({"text": TEXT})
    async with FunctionRegistry({"trivial": Trivial()}) as registry:

        async def run(n: int) -> None:
            for _ in repeat(None, n):
                call = ToolCall(id="c1", name="echo", arguments=arguments)
                await registry.execute(call, CallContext(principal=ALICE))

        yield timed(run)


@asynccontextmanager
async def searching(tools: int = 1, providers: int = 1) -> AsyncGenerator[Batch]:
    """Call the last of so many tools of the last of so many providers, with 1 KB of arguments and 4 KB of result."""
    parts = {f"part_{index}": Many(tools, prefix=f"tool_{index}") for index in range(providers)}
    async with FunctionRegistry(parts) as registry:
        yield await repeated(registry, ToolCall(id="c1", name=f"tool_{providers - 1}_{tools - 1}", arguments=SEARCH))


@asynccontextmanager
async def reshaped() -> AsyncGenerator[Batch]:
    """Call the trivial tool through a prefix, notes, a filter, wire names and a joined view, one upon another."""
    notes = {"bench.echo": (Note("style", "Be short."),)}
    async with FunctionRegistry({"trivial": Trivial()}) as registry, FunctionRegistry({"many": Many(10)}) as other:
        view = registry.view(lambda catalog: catalog.prefixed("bench"))
        view = view.view(lambda catalog: catalog.annotated(notes))
        view = view.view(lambda catalog: catalog.where(lambda tool: tool.definition.name != "bench.echo_later"))
        view = view.view(
            lambda catalog: catalog.renamed({name: tool.definition.wire for name, tool in catalog.items()})
        )
        view = MergedExecutor(UNKNOWN, view, other)
        yield await repeated(view, ToolCall(id="c1", name="bench__echo", arguments={"text": TEXT}))


@asynccontextmanager
async def in_session() -> AsyncGenerator[Batch]:
    """Call the trivial tool through a session's view, with a context that says nothing of the session."""
    async with FunctionRegistry({"trivial": Trivial()}) as registry, FunctionRegistry({"many": Many(20)}) as own:
        view = MergedExecutor(UNKNOWN, registry, own, session="ABCD2345")
        yield await repeated(view, ToolCall(id="c1", name="echo", arguments={"text": TEXT}))


@asynccontextmanager
async def late(name: str) -> AsyncGenerator[Batch]:
    """How late the answer to a call past its deadline comes, on a loop that has nothing else to do.

    Every call has a registry of its own: a provider whose tools will not go is soon refused.
    """
    call = ToolCall(id="c1", name=name)
    loop = asyncio.get_running_loop()

    async def batch(n: int) -> float:
        lateness = 0.0
        for _ in range(n):
            async with FunctionRegistry({"tardy": Tardy()}) as registry:
                deadline = loop.time() + DEADLINE_S
                result = await registry.execute(call, CallContext(principal=ALICE, deadline=deadline))
                lateness += loop.time() - deadline
                assert result.status is ToolStatus.TIMEOUT, result
        return lateness

    yield batch


ROWS = (
    Row(
        name="full call, trivial",
        ours=trivial,
        other=bare.awaited,
        against="bare await",
        hold=_TRIVIAL_HOLD,
        aim=_TRIVIAL_AIM,
    ),
    Row(name="full call, trivial", ours=trivial, other=bare.text_awaited, against="awaiting its text alone"),
    Row(
        name="full call, from JSON text with a fresh context",
        ours=calling_from_text,
        other=bare.awaited,
        against="bare await",
        hold=27,
        aim=15,
    ),
    Row(
        name="full call, 1 KB arguments, 4 KB result, encoded",
        ours=searching,
        other=bare.awaited_search,
        against="bare await",
        hold=48,
        aim=30,
    ),
    Row(
        name="full call, trivial",
        ours=trivial,
        other=peers.fastmcp_call,
        against="FastMCP call_tool",
        hold=1 / 30,
        aim=1 / 60,
    ),
    Row(
        name="full call, trivial",
        ours=trivial,
        other=peers.mcp_call,
        against="MCP SDK call_tool",
        hold=1 / 4,
        aim=1 / 8,
    ),
    Row(
        name="full call, trivial",
        ours=trivial,
        other=peers.pydantic_ai_call,
        against="pydantic-ai ToolManager",
        hold=1 / 10,
        aim=1 / 20,
    ),
    Row(name="full call, trivial", ours=trivial, other=peers.langchain_call, against="LangChain ainvoke"),
    Row(name="through five reshapings", ours=reshaped, other=trivial, against="direct", hold=1.1, aim=1.0),
    Row(name="through a session's view", ours=in_session, other=trivial, against="direct", hold=1.1, aim=1.0),
    Row(
        name="at 10,000 tools",
        ours=partial(searching, tools=10_000),
        other=searching,
        against="at one",
        hold=1.15,
        aim=1.0,
    ),
    Row(
        name="at 100 providers",
        ours=partial(searching, providers=100),
        other=searching,
        against="at one",
        hold=1.15,
        aim=1.0,
    ),
    Row(
        name="tool that suspends once",
        ours=partial(calling, "echo_later"),
        other=bare.awaited_later,
        against="bare suspending",
        hold=_SUSPENDING_HOLD,
        aim=_SUSPENDING_AIM,
    ),
    Row(
        name="synchronous tool",
        ours=partial(calling, "echo_blocking"),
        other=bare.to_thread,
        against="asyncio.to_thread",
        hold=1.4,
        aim=1.0,
    ),
    *(
        Row(name=name, ours=partial(late, tool), hold=5, aim=1, unit=MILLISECONDS, pairs=30, batch_s=0)
        for name, tool in (
            ("deadline: answer late by", "sleep"),
            ("deadline: answer late by, cancellation swallowed", "cling"),
        )
    ),
)
