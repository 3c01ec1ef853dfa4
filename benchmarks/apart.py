"""A provider in a process of its own: what a call costs in both processes, and how long a start takes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time

import uvloop

from benchmarks.calling import ALICE
from benchmarks.frame import MILLISECONDS, Batch, Row
from benchmarks.providers import Disturber, Trivial
from toolplug import CallContext, FunctionRegistry, ToolCall
from toolplug.apart.entries import apart_class
from toolplug.config.run_settings import RunSettings
from toolplug.providers.entry import DesiredProvider, ProviderEntry

LOOP = uvloop.new_event_loop
"""That of `toolplug serve`, which both processes use."""
SAMPLES = 400
PAUSE_S = 0.002
CALL = ToolCall(id="c1", name="echo", arguments={"text": "x" * 1024})


@asynccontextmanager
async def running_apart() -> AsyncGenerator[tuple[FunctionRegistry, int]]:
    """Run the trivial provider in a process of its own; yields its registry and the id of the process."""
    made = apart_class(Trivial, {}, "trivial")
    entry = ProviderEntry(key="trivial", type="trivial", run=RunSettings(process=True))
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


@asynccontextmanager
async def beside(what: str, of: Callable[[Sequence[float]], float]) -> AsyncGenerator[Batch]:
    """Call one provider while another one disturbs in a process of its own; yields a figure of the times by the clock.

    The caller pauses between two calls: it is not the caller of the row that waits for a turn, but one who comes.
    """
    made = apart_class(Disturber, {}, "disturber")
    entry = ProviderEntry(key="disturber", type="disturber", run=RunSettings(process=True))
    async with FunctionRegistry() as registry:
        trivial = DesiredProvider(ProviderEntry(key="trivial", type="trivial"), Trivial)
        await registry.apply([trivial, DesiredProvider(entry, lambda: made)])
        context = CallContext(principal=ALICE)
        disturbing = asyncio.create_task(registry.call(what))

        async def batch(n: int) -> float:
            waits: list[float] = []
            for _ in range(SAMPLES):
                began = perf_counter()
                assert not (await registry.execute(CALL, context)).is_error
                waits.append(perf_counter() - began)
                await asyncio.sleep(PAUSE_S)
            assert not disturbing.done()
            return of(waits) * n

        yield batch
        disturbing.cancel()
        await asyncio.wait({disturbing})


def p99(waits: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return quantiles(waits, n=100)[98]


DISTURBANCES = (
    *(
        Row(
            name=f"a call of another provider while one in a process of its own {words}: {figure}",
            ours=partial(beside, what, of),
            hold=hold,
            aim=hold,
            unit=MILLISECONDS,
            pairs=3,
            batch_s=0,
        )
        for what, words in (("loop", "loops"), ("eat", "eats memory"), ("flood", "floods its socket"))
        for figure, of, hold in (("p99", p99, 5), ("worst", max, 50))
    ),
)

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
    *DISTURBANCES,
)
