"""The host of the rows of code mode, and a process of its own that goes on with what another one has paused.

`python -m benchmarks.code_mode_host STORE` answers each line of its input, the ticket and the script as JSON, with the
answer of the script and what it has cost, also as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time_ns

from benchmarks.calling import ALICE
from toolplug import CallContext, FunctionProvider, Host, open_host, tool


class Shop(FunctionProvider):
    """Tools that read, and tools that write."""

    @tool(read_only=True)
    async def echo(self, text: str) -> str:
        """Return the text."""
        return text

    @tool(read_only=True)
    async def price(self, item: str) -> dict[str, object]:
        """Say what an item costs."""
        return {"item": item, "cents": 100 + len(item) * 7 % 90, "currency": "EUR"}

    @tool
    async def order(self, item: str) -> str:
        """Order an item."""
        return f"ordered {item}"


@asynccontextmanager
async def opened(store: str = "memory://") -> AsyncGenerator[Host]:
    """A host whose scripts may call every tool, and must be approved where they order."""
    entries = {"shop": {"tools": {"order": "ask"}}, "code": {"enabled": True, "type": "code_mode", "callers": "all"}}
    async with open_host({"store": store, "providers": entries}, environ={}, providers={"shop": Shop()}) as host:
        yield host


def cpu_time() -> float:
    """Return the CPU time of this process and of its interpreters, in seconds; the kernel counts it in nanoseconds."""
    spent = process_time_ns()
    for thread in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        for pid in thread.read_text().split():
            spent += sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return spent / 1e9


async def run_script(host: Host, code: str, ticket: str | None = None) -> Mapping[str, object]:
    """Run a script, or go on with it; return its output, and the approval that it waits for."""
    context = CallContext(ALICE, approval=ticket)
    result = await host.executor_for(ALICE).call("run_code", {"code": code}, context)
    asked = result.metadata.get("approval")
    assert not result.is_error or asked, result
    return {"output": result.output, "approval": asked}


async def go_on(store: str) -> None:
    """Go on with the scripts of the input until it ends."""
    async with opened(store) as host:
        await run_script(host, "1")  # its interpreter runs
        for line in iter(sys.stdin.readline, ""):
            ticket, code = json.loads(line)
            before = cpu_time()
            result = await run_script(host, code, ticket)
            print(json.dumps([result["output"], cpu_time() - before]), flush=True)


if __name__ == "__main__":
    asyncio.run(go_on(sys.argv[1]))
