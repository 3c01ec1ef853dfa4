"""Tool search: what a model is sent of 10,000 deferred tools, a search among them, and the loop while it is indexed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle, islice
from time import process_time
from types import MappingProxyType

from benchmarks.frame import MILLISECONDS, Batch, Row, Unit
from benchmarks.providers import Many
from benchmarks.session_views import Turns
from toolplug import FunctionRegistry, ToolCall
from toolplug.catalog.definition import Offered
from toolplug.catalog.render import Dialect
from toolplug.execution.live import LiveCatalog

TOOLS = 10_000
SEARCHES = 200
BYTES_A_TOKEN = 4
TOKENS = Unit(name="tokens", scale=1 / BYTES_A_TOKEN)
WORST = 2
"""Of 200 searches, so many are slower than the 99th percentile."""

QUERIES = MappingProxyType(
    {
        "a tool": ("collection 4711", "search the documents of collection 12", "tool_9999"),
        "the word that every tool has": ("search", "documents", "collection"),
    }
)


@asynccontextmanager
async def deferred() -> AsyncGenerator[LiveCatalog]:
    """A registry of which every tool is searched for."""
    async with FunctionRegistry({"many": Many(TOOLS)}) as registry:
        yield registry.view(lambda catalog: registry.search.add_search_tools(catalog.offered(Offered("search"))))


@asynccontextmanager
async def sent(dialect: Dialect) -> AsyncGenerator[Batch]:
    """Count the bytes of the tools in a request."""
    async with deferred() as tools:

        async def batch(n: int) -> float:
            return float(len(tools.catalog.render(dialect)) * n)

        yield batch


@asynccontextmanager
async def slowest(queries: Sequence[str]) -> AsyncGenerator[Batch]:
    """Search 200 times through `execute`, and return the 99th percentile of their CPU times."""
    async with deferred() as tools:
        await tools.execute(ToolCall("1", "search_tools", {"query": queries[0]}))

        async def batch(n: int) -> float:
            costs: list[float] = []
            for query in islice(cycle(queries), SEARCHES):
                started = process_time()
                result = await tools.execute(ToolCall("1", "search_tools", {"query": query}))
                costs.append(process_time() - started)
                assert not result.is_error
            return sorted(costs)[-1 - WORST] * n

        yield batch


@asynccontextmanager
async def indexing() -> AsyncGenerator[Batch]:
    """Make the index by a first search, and return the longest turn of the loop meanwhile."""
    async with deferred() as tools:

        async def batch(n: int) -> float:
            fresh = tools.view(lambda catalog: catalog.where(lambda tool: tool.definition.name != "tool_0"))
            len(fresh.catalog)  # reshaping is no part of the search
            turns = Turns()
            taking = asyncio.create_task(turns.watch())
            await asyncio.sleep(0)
            await fresh.execute(ToolCall("1", "search_tools", {"query": "collection"}))
            taking.cancel()
            return turns.longest * n

        yield batch


ROWS = (
    *(
        Row(
            name=f"request that offers {TOOLS:,} deferred tools, {dialect}",
            ours=partial(sent, dialect),
            hold=2_500,
            aim=500,
            unit=TOKENS,
            pairs=1,
            batch_s=0,
        )
        for dialect in ("chat", "gemini", "mcp")
    ),
    *(
        Row(
            name=f"p99 of a search among {TOOLS:,} tools for {what}",
            ours=partial(slowest, queries),
            hold=5,
            aim=2,
            unit=MILLISECONDS,
            pairs=5,
            batch_s=0,
        )
        for what, queries in QUERIES.items()
    ),
    Row(
        name=f"longest turn of the loop while {TOOLS:,} tools are indexed",
        ours=indexing,
        hold=50,
        aim=15,
        unit=MILLISECONDS,
        pairs=5,
        batch_s=0,
    ),
)
