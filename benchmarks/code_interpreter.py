"""Containers of `toolplug-code-interpreter`: a first call against a bare sandbox, a next beside a first.

The cost is time and not the processor's, since the work is done by other processes.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from benchmarks.frame import MILLISECONDS, Batch, Row
from toolplug import CallContext, FunctionRegistry, ToolCall, ToolResult
from toolplug_code_interpreter.provider import CodeInterpreter

PYTHON = Path(sys.executable).resolve()
BARE = (
    *("--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--ro-bind", sys.base_prefix, sys.base_prefix, "--", str(PYTHON), "-c", "pass"),
)


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
)
