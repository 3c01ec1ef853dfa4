"""Containers of `toolplug-code-interpreter`: a first call beside a bare sandbox, a next beside a first, and twenty.

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
from toolplug_code_interpreter.processes import memory_bytes
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
    async with interpreter(memory=MEMORY, processes=8, time=2) as call:

        async def batch(_: int) -> float:
            calls = [asyncio.create_task(call(GREEDY, f"SESSION{n:X}")) for n in range(20)]
            most = 0
            while not all(each.done() for each in calls):
                await asyncio.sleep(0.005)
                most = max([most, *map(_memory, _containers())])
            return most / MEMORY

        yield batch


def _containers() -> list[int]:
    """The init processes of the containers that run below this process."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        children = Path(f"/proc/self/task/{thread}/children").read_text().split()
        found += [int(init) for each in children for init in _children(each)]
    return found


def _children(process: str) -> list[str]:
    try:
        return Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []


def _memory(init: int) -> int:
    return memory_bytes(init, enough=MEMORY)


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
        hold=1.25,
        aim=1.0,
        unit=SHARE,
        pairs=3,
        batch_s=0.0,
    ),
)
