"""A provider in a process of its own: what a call costs in both processes, and how long a start takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from time import perf_counter, process_time

import uvloop

from benchmarks.calling import ALICE
from benchmarks.frame import MILLISECONDS, Batch, Row
from benchmarks.providers import Trivial
from toolplug import CallContext, FunctionRegistry, ToolCall
from toolplug.apart.entries import apart_class
from toolplug.providers.entry import DesiredProvider, ProviderEntry

LOOP = uvloop.new_event_loop
"""That of `toolplug serve`, which both processes use."""
CALL = ToolCall(id="c1", name="echo", arguments={"text": "x" * 1024})


@asynccontextmanager
async def running_apart() -> AsyncGenerator[tuple[FunctionRegistry, int]]:
    """Run the trivial provider in a process of its own; yields its registry and the id of the process."""
    made = apart_class(Trivial, {}, "trivial")
    entry = ProviderEntry(key="trivial", type="trivial", apart=True)
    async with FunctionRegistry() as registry:
        await registry.apply([DesiredProvider(entry, lambda: made)])
        yield registry, vars(made)["_process"].pid


async def _repeated(registry: FunctionRegistry, process: int | None) -> Batch:
    """Make the call again and again; its cost is the CPU time of both processes."""
    context = CallContext(principal=ALICE)

    async def batch(n: int) -> float:
        began = process_time() + _cpu_s(process)
        for _ in repeat(None, n):
            await registry.execute(CALL, context)
        return process_time() + _cpu_s(process) - began

    assert not (await registry.execute(CALL, context)).is_error
    return batch


def _cpu_s(process: int | None) -> float:
    return 0.0 if process is None else int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


@asynccontextmanager
async def apart() -> AsyncGenerator[Batch]:
    """Call in a process of its own."""
    async with running_apart() as (registry, process):
        yield await _repeated(registry, process)


@asynccontextmanager
async def in_process() -> AsyncGenerator[Batch]:
    """Call in this process."""
    async with FunctionRegistry({"trivial": Trivial()}) as registry:
        yield await _repeated(registry, None)


@asynccontextmanager
async def starting() -> AsyncGenerator[Batch]:
    """Start the provider in a process, until its first call could be made; the end is not timed."""

    async def batch(n: int) -> float:
        took = 0.0
        for _ in range(n):
            began = perf_counter()
            async with running_apart():
                took += perf_counter() - began
        return took

    yield batch


@asynccontextmanager
async def importing() -> AsyncGenerator[Batch]:
    """Import the provider's module, and nothing else."""

    async def batch(n: int) -> float:
        began = perf_counter()
        for _ in range(n):
            _import_alone()
        return perf_counter() - began

    yield batch


def _import_alone() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", "import benchmarks.providers"], check=True, env=environment)


ROWS = (
    Row(
        name="a call of 1 KB in a process of its own",
        ours=apart,
        other=in_process,
        against="in the host's process",
        hold=30,
        aim=20,
        pairs=101,
        batch_s=0.01,
    ),
    Row(
        name="the start of a provider in a process of its own",
        ours=starting,
        other=importing,
        against="its module imported by python -c",
        hold=2,
        aim=2,
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0,
    ),
)
