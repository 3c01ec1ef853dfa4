"""What tools weigh: resident memory of a process that holds and has listed 10,000 tools, less that with one.

`python -m benchmarks.memory COUNT` is such a process; it prints its resident bytes.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from resource import getpagesize
from subprocess import check_output

from benchmarks.frame import MEBIBYTES, Batch, Row
from benchmarks.providers import Many
from toolplug import FunctionRegistry

TOOLS = 10_000


@asynccontextmanager
async def weighed() -> AsyncGenerator[Batch]:
    """Start a process with many tools and one with one."""

    async def batch(n: int) -> float:
        return sum(_resident(TOOLS) - _resident(1) for _ in range(n))

    yield batch


def _resident(count: int) -> int:
    return int(check_output([sys.executable, "-m", "benchmarks.memory", str(count)]))


async def _weigh(count: int) -> None:
    async with FunctionRegistry({"many": Many(count)}) as registry:
        registry.catalog.render("mcp")
        gc.collect()
        _print_resident()


def _print_resident() -> None:
    print(int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * getpagesize())


ROWS = (Row(name="memory of 10,000 tools, listed once", ours=weighed, unit=MEBIBYTES, pairs=3),)

if __name__ == "__main__":
    asyncio.run(_weigh(int(sys.argv[1])))
