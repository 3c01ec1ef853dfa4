"""`python -m benchmarks [--page] [FAMILY…]`: measure the families, by default all, and print the table as it grows."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from benchmarks.frame import Figure, Row, measure
from benchmarks.page import write_page
from benchmarks.table import heading, line, summary

FAMILIES = (
    "call",
    "call_hooks",
    "grants",
    "apart",
    "locking",
    "tracing",
    "console",
    "listing",
    "http",
    "edge",
    "mcp_server",
    "mcp_client",
    "mcp_sources",
    "startup",
    "first_hour",
    "walks",
    "memory",
    "relay",
    "fan_out",
    "delivery",
    "session_load",
    "session_updates",
    "session_views",
    "session_memory",
    "shared_store",
    "replicas",
    "redis_store",
    "postgres_store",
    "remote",
    "toolsets",
    "equipping",
    "tool_search",
    "code_interpreter",
    "code_mode",
    "adapters",
    "tasks",
    "web_search",
    "file_search",
    "file_search_apart",
    "responses",
)


async def run(rows: Sequence[Row]) -> list[Figure]:
    """Measure one row after the other and print each as soon as it is known."""
    figures: list[Figure] = []
    for row in rows:
        figures.append(await measure(row))
        print(line(figures[-1]), flush=True)
    return figures


def rows_of(family: str) -> Sequence[Row]:
    """Import a family and return its rows."""
    return _family(family).ROWS


def _family(family: str) -> ModuleType:
    return import_module(f"benchmarks.{family}")


def main(arguments: Sequence[str]) -> int:
    """Run the wanted families; 2 for one that does not exist. `--page` also writes the figures into the documentation.

    A family is imported when its turn comes: the peers that it imports take seconds and stay in memory.
    """
    wanted = [each for each in arguments if each != "--page"]
    if unknown := sorted(set(wanted) - set(FAMILIES)):
        print(f"no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}", file=sys.stderr)
        return 2
    print(*heading(), sep="\n", flush=True)
    figures: list[Figure] = []
    for family in wanted or FAMILIES:
        # A family may name the loop of `toolplug serve`; the others compare code, for which the loop is the same.
        with asyncio.Runner(loop_factory=getattr(_family(family), "LOOP", None)) as runner:
            figures += runner.run(run(rows_of(family)))
    print(summary(figures))
    if "--page" in arguments:
        write_page((row for family in FAMILIES for row in rows_of(family)), figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
