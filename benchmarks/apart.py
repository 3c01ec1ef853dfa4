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
from benchmarks.frame import MEBIBYTES, MILLISECONDS, Batch, Row
from benchmarks.providers import Disturber, Trivial
from toolplug import CallContext, FunctionRegistry, Principal, ToolCall, ToolExecutor, open_host
from toolplug.apart.entries import apart_class
from toolplug.config.run_settings import RunSettings
from toolplug.providers.entry import DesiredProvider, ProviderEntry

LOOP = uvloop.new_event_loop
"""That of `toolplug serve`, which both processes use."""
SAMPLES = 400
PAUSE_S = 0.002
APART = RunSettings(process=True)
CONFINED = RunSettings(process=True, confine="required")
OPERATOR = Principal(subject="olga", tenant="t1", scopes=frozenset({"admin", "operator"}))
_HERE = str(Path(__file__).parent.parent)
CALL = ToolCall(id="c1", name="echo", arguments={"text": "x" * 1024})


@asynccontextmanager
async def running_apart(run: RunSettings = APART) -> AsyncGenerator[tuple[FunctionRegistry, int]]:
    """Run the trivial provider in a process of its own; yields its registry and the id of the process."""
    made = apart_class(Trivial, {}, "trivial", run)
    entry = ProviderEntry(key="trivial", type="trivial", run=run)
    async with FunctionRegistry() as registry:
        await registry.apply([DesiredProvider(entry, lambda: made)])
        yield registry, process_of(registry, "trivial")


def process_of(registry: FunctionRegistry, key: str) -> int:
    """Return the id of the process of a provider."""
    return vars(registry.running()[key].provider)["_process"].pid


async def _repeated(executor: ToolExecutor, process: int | None, call: ToolCall = CALL) -> Batch:
    """Make the call again and again; its cost is the CPU time of both processes."""
    context = CallContext(principal=ALICE)

    async def batch(n: int) -> float:
        began = process_time() + cpu_s(process)
        for _ in repeat(None, n):
            await executor.execute(call, context)
        return process_time() + cpu_s(process) - began

    assert not (await executor.execute(call, context)).is_error
    return batch


def cpu_s(process: int | None) -> float:
    """Return the CPU time of all threads of a process."""
    tasks = () if process is None else Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9


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
async def as_mcp_server() -> AsyncGenerator[Batch]:
    """Call the same class as a server of the MCP SDK that the host starts and speaks to over pipes."""
    before = _children()
    entry = {"command": sys.executable, "args": ["-m", "benchmarks.applications.echo_pipes"], "cwd": _HERE}
    settings = {"store": "memory://", "mcp_servers": {"bench": entry}, "agents": {"caller": {"toolsets": ["bench"]}}}
    settings["toolsets"] = {"bench": {"prefix": "bench", "from": "mcp:bench"}}
    async with open_host(settings, environ={}) as host:
        await host.servers.loaded.discover("bench", by=OPERATOR, wait_s=30.0, request_id="")
        executor, call = host.executor_for(ALICE, agent="caller"), CALL._replace(name="bench.echo")
        result = await executor.execute(call, CallContext(principal=ALICE, agent="caller"))
        assert not result.is_error, result.output
        [process] = _children() - before
        yield await _repeated(executor, process, call)


def _children() -> set[int]:
    found = (each.read_text().split() for each in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for pids in found for pid in pids}


@asynccontextmanager
async def weighing() -> AsyncGenerator[Batch]:
    """Weigh a process that waits for calls: the memory that no other process shares."""
    async with running_apart() as (_, process):

        async def batch(n: int) -> float:
            return n * _private_bytes(process)

        yield batch


def _private_bytes(process: int) -> int:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


@asynccontextmanager
async def starting(run: RunSettings = APART) -> AsyncGenerator[Batch]:
    """Start the provider in a process, until its first call could be made; the end is not timed."""

    async def batch(n: int) -> float:
        took = 0.0
        for _ in range(n):
            began = perf_counter()
            async with running_apart(run):
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
        name="a call of 1 KB in a process of its own",
        ours=apart,
        other=as_mcp_server,
        against="the same class as an MCP server over stdio",
        hold=0.1,
        aim=0.05,
        pairs=31,
        batch_s=0.02,
    ),
    *(
        Row(
            name=f"the start of a provider in a process of its own{words}",
            ours=partial(starting, run),
            other=importing,
            against="its module imported by python -c",
            hold=2,
            aim=2,
            unit=MILLISECONDS,
            pairs=15,
            batch_s=0,
        )
        for run, words in ((APART, ""), (CONFINED, ", confined"))
    ),
    Row(
        name="memory of a provider's own process",
        ours=weighing,
        hold=48,
        aim=32,
        unit=MEBIBYTES,
        pairs=3,
        batch_s=0,
    ),
    *DISTURBANCES,
)
