"""A search through `toolplug-web-search` against the same request by httpx2: CPU time of both processes.

The search engine is a stand-in that answers at once; a real one takes many times as long, which brings the ratio to 1.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import repeat

import httpx2

from benchmarks.calling import repeated
from benchmarks.frame import Batch, Row, timed
from benchmarks.process import Served, started
from toolplug import FunctionRegistry, ToolCall
from toolplug_web_search.provider import WebSearch

CALL = ToolCall(id="c1", name="web_search", arguments={"query": "do otters hold hands"})


def with_engine(served: Served, searches: Batch) -> Batch:
    """Add the CPU time of the search engine's process."""

    async def batch(n: int) -> float:
        before = served.cpu_s()
        cost = await searches(n)
        return cost + served.cpu_s() - before

    return batch


@asynccontextmanager
async def searched() -> AsyncGenerator[Batch]:
    """The tool, without its cache."""
    with started("benchmarks.server", "searxng") as served:
        settings = {"url": f"http://127.0.0.1:{served.port}", "cache_s": 0.0}
        async with FunctionRegistry({"web": WebSearch(settings)}) as registry:
            yield with_engine(served, await repeated(registry, CALL))


@asynccontextmanager
async def asked() -> AsyncGenerator[Batch]:
    """The search engine alone, by a client that keeps its connection and reads the JSON."""
    with started("benchmarks.server", "searxng") as served:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as client:

            async def run(n: int) -> None:
                for _ in repeat(None, n):
                    answer = await client.get("/search", params={"q": "do otters hold hands", "format": "json"})
                    assert len(answer.json()["results"]) == 10

            yield with_engine(served, timed(run))


@asynccontextmanager
async def cached() -> AsyncGenerator[Batch]:
    """The tool, answered from its cache."""
    with started("benchmarks.server", "searxng") as served:
        async with FunctionRegistry({"web": WebSearch({"url": f"http://127.0.0.1:{served.port}"})}) as registry:
            yield await repeated(registry, CALL)


ROWS = (
    Row(
        name="search of the web",
        ours=searched,
        other=asked,
        against="the same request by httpx2",
        hold=1.2,
        aim=1.1,
        pairs=101,
        batch_s=0.02,
    ),
    Row(name="search of the web, from the cache", ours=cached, pairs=61),
)
