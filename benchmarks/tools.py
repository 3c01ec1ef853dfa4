"""The tools that every side calls, and what they are given."""

from __future__ import annotations

import asyncio

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
