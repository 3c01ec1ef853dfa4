"""Containers of `toolplug-code-interpreter`: a first call against a bare sandbox, a next call, and twenty at once.

The cost is time and not the processor's, since the work is done by other processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from benchmarks.frame import MILLISECONDS, Batch, Row, Unit
from toolplug import CallContext, FunctionRegistry, ToolCall, ToolResult
from toolplug_code_interpreter.provider import CodeInterpreter

PYTHON = Path(sys.executable).resolve()
BARE = (
    *("--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--ro-bind", sys.base_prefix, sys.base_prefix, "--", str(PYTHON), "-c", "pass"),
)
MEMORY = 96 * 1024 * 1024
GREEDY = "import os\nfor _ in range(2): os.fork()\nkept = []\nwhile True: kept.append(bytearray(4_000_000))"
SHARE = Unit(name="x limit", scale=1.0)
MEASURED = """
import select, sys
from toolplug_code_interpreter.sandbox.processes import descendants, memory_use
host, limit, most = int(sys.argv[1]), int(sys.argv[2]), 0
def text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
while not select.select([sys.stdin], [], [], 0.002)[0]:
    for outer in text(f"/proc/{host}/task/{host}/children").split():
        for init in descendants(int(outer))[:1] if text(f"/proc/{outer}/comm") == "bwrap\\n" else ():
            used = memory_use(init, enough=limit).bytes
            if text(f"/proc/{init}/smaps_rollup"):  # else it was ending, and what its processes share counted for each
                most = max(most, used)
print(most)
"""
"""Prints the most memory that a container below the process of the first argument had, until its input ends."""


def lasting(run: Callable[[], Awaitable[object]]) -> Batch:
    """Make a batch of an operation; its cost is how long it lasts."""

    async def batch(n: int) -> float:
        started = perf_counter()
        for _ in range(n):
            await run()
        return perf_counter() - started

    return batch


@asynccontextmanager
async def interpreter(**settings: object) -> AsyncGenerator[Callable[..., Awaitable[ToolResult]]]:
    """Calls of the tool: with a session's name they share a container."""
    async with FunctionRegistry({"code_interpreter": CodeInterpreter(settings)}) as registry:

        async def call(code: str = "1 + 1", session: str | None = None) -> ToolResult:
            made = ToolCall("c1", "code_interpreter", {"code": code})
            return await registry.execute(made, CallContext(session=session))

        yield call


@asynccontextmanager
async def first_call() -> AsyncGenerator[Batch]:
    """A call in a container that starts for it."""
    async with interpreter(max_containers_per_tenant=1) as call:
        yield lasting(call)


@asynccontextmanager
async def next_call() -> AsyncGenerator[Batch]:
    """A call in a container that has had one."""
    async with interpreter() as call:
        yield lasting(lambda: call(session="AAAAAAAA"))


@asynccontextmanager
async def bare_sandbox() -> AsyncGenerator[Batch]:
    """`bwrap … python -c pass`, waited for."""
    bubblewrap = shutil.which("bwrap") or "bwrap"

    async def run() -> None:
        process = await asyncio.create_subprocess_exec(bubblewrap, *BARE)
        assert await process.wait() == 0

    yield lasting(run)


@asynccontextmanager
async def twenty() -> AsyncGenerator[Batch]:
    """Twenty containers whose code takes memory without end; the most that one of them had, of its limit."""
    async with interpreter(memory=MEMORY, processes=8, time=10) as call:

        async def batch(_: int) -> float:
            arguments = ("-c", MEASURED, str(os.getpid()), str(MEMORY))
            pipe = asyncio.subprocess.PIPE
            measuring = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
            results = await asyncio.gather(*(call(GREEDY, f"SESSION{n:X}") for n in range(20)))
            most, _nothing = await measuring.communicate(b"")
            assert all("of memory together" in result.output for result in results), results
            return int(most) / MEMORY

        yield batch


ROWS = (
    Row(
        name="code interpreter: first call, in a fresh container",
        ours=first_call,
        other=bare_sandbox,
        against="bare bwrap python -c pass",
        hold=2.0,
        aim=1.5,
        unit=MILLISECONDS,
        pairs=41,
        batch_s=0.0,
    ),
    Row(
        name="code interpreter: next call",
        ours=next_call,
        other=first_call,
        against="first call",
        hold=0.2,
        aim=0.1,
        unit=MILLISECONDS,
        pairs=41,
        batch_s=0.0,
    ),
    Row(
        name="code interpreter: largest of twenty greedy containers",
        ours=twenty,
        hold=1.05,
        aim=1.0,
        unit=SHARE,
        pairs=3,
        batch_s=0.0,
    ),
)
