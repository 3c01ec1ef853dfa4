"""The tools that every side calls, and the sides that call them with nothing around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import repeat

from benchmarks.frame import Batch, timed

TEXT = "hello"

SEARCH: dict[str, object] = {
    "query": "how does a registry drain the calls of a provider that is being reloaded",
    "filters": [{"field": f"attribute_{n}", "values": [f"value-{n}-{m}" for m in range(4)]} for n in range(9)],
    "limit": 10,
    "offset": 0,
    "language": "en",
    "highlight": True,
}
"""1 KB of arguments as JSON."""

HITS: list[dict[str, object]] = [
    {
        "title": f"Section {n} of the manual",
        "path": f"manual/section-{n}.md",
        "score": 12.5 - n,
        "passage": "word " * 64,
    }
    for n in range(10)
]
"""4 KB of result as JSON."""


async def echo(text: str) -> str:
    """Return the text."""
    return text


async def echo_later(text: str) -> str:
    """Return the text in the loop's next turn."""
    await asyncio.sleep(0)
    return text


def echo_blocking(text: str) -> str:
    """Return the text; for threads."""
    return text


async def search(arguments: dict[str, object]) -> list[dict[str, object]]:
    """Return the hits."""
    return HITS


@asynccontextmanager
async def awaited() -> AsyncGenerator[Batch]:
    """Await the trivial tool."""

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await echo(text=TEXT)

    yield timed(run)


@asynccontextmanager
async def awaited_search() -> AsyncGenerator[Batch]:
    """Await the tool with 1 KB of arguments and 4 KB of result."""

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await search(SEARCH)

    yield timed(run)


@asynccontextmanager
async def awaited_later() -> AsyncGenerator[Batch]:
    """Await the tool that suspends once."""

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await echo_later(text=TEXT)

    yield timed(run)


@asynccontextmanager
async def to_thread() -> AsyncGenerator[Batch]:
    """Run the synchronous tool in asyncio's own threads."""

    async def run(n: int) -> None:
        for _ in repeat(None, n):
            await asyncio.to_thread(echo_blocking, text=TEXT)

    yield timed(run)
