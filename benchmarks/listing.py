"""Listing tools: an unchanged list in every dialect, and the first one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat
from time import process_time

from benchmarks.frame import MILLISECONDS, Batch, Row, timed
from benchmarks.peers import fastmcp_listing
from benchmarks.providers import ECHO_SCHEMA, Many
from toolplug import Catalog, FunctionRegistry
from toolplug.catalog.render import Dialect


class Kept:
    """An object with a method that gives a kept bytes object."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def read(self) -> bytes:
        """The kept bytes."""
        return self._body


@asynccontextmanager
async def kept_bytes() -> AsyncGenerator[Batch]:
    """Read a kept bytes object."""
    kept = Kept(b"[]")

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            kept.read()

    yield timed(run)


@asynccontextmanager
async def unchanged(dialect: Dialect, count: int) -> AsyncGenerator[Batch]:
    """Ask the current catalog of a registry for its list again."""
    async with FunctionRegistry({"many": Many(count)}) as registry:
        catalog = registry.catalog

        async def run(n: int) -> None:
            for _ in repeat(None, n):
                catalog.render(dialect)

        yield timed(run)


@asynccontextmanager
async def first(count: int) -> AsyncGenerator[Batch]:
    """Render a catalog of which nothing was rendered before; making it so is not counted."""
    async with FunctionRegistry({"many": Many(count, schema=ECHO_SCHEMA)}) as registry:
        tools = tuple(registry.catalog.values())

        async def batch(n: int) -> float:
            cost = 0.0
            for _ in repeat(None, n):
                for tool in tools:
                    tool.definition.fragments.clear()
                fresh = Catalog(tools)
                started = process_time()
                fresh.render("mcp")
                cost += process_time() - started
            return cost

        yield batch


CHANGELESS: tuple[tuple[Dialect, int], ...] = (
    ("chat", 10),
    ("chat", 10_000),
    ("responses", 10_000),
    ("anthropic", 10_000),
    ("mcp", 10_000),
)

ROWS = (
    *(
        Row(
            name=f"unchanged list, {dialect}, {count:,} tools",
            ours=partial(unchanged, dialect, count),
            other=kept_bytes,
            against="reading a kept bytes object",
            hold=3,
            aim=1,
            pairs=15,
        )
        for dialect, count in CHANGELESS
    ),
    Row(
        name="first render of 1,000 tools",
        ours=partial(first, 1000),
        other=fastmcp_listing,
        against="FastMCP's listing",
        hold=1 / 15,
        aim=1 / 25,
        unit=MILLISECONDS,
        pairs=15,
    ),
)
