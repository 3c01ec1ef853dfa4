"""A provider in a process of its own: what a call costs in both processes, and how long a start takes."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

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
_KILOBYTE = b"x" * 1024
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


@contextmanager
def on_one_processor(process: int) -> Generator[None]:
    """Let this process and another one run on the same processor.

    Then neither has to wake an idle one, which costs more than both do for a call on some machines, and nothing on one
    whose processors all have work.
    """
    before = os.sched_getaffinity(0)
    one = {min(before)}
    os.sched_setaffinity(0, one)
    os.sched_setaffinity(process, one)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@asynccontextmanager
async def apart_on_one_processor() -> AsyncGenerator[Batch]:
    """Call in a process of its own, which has the host's processor."""
    async with running_apart() as (registry, process):
        with on_one_processor(process):
            yield await _repeated(registry, process)


class _Echoed(asyncio.Protocol):
    """Sends 1 KB and waits until it is back."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.back: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.back is not None and not self.back.done():
            self.back.set_result(None)

    async def send(self) -> None:
        self.back = asyncio.get_running_loop().create_future()
        self.transport.write(_KILOBYTE)
        await self.back


def _start_echo(theirs: socket.socket) -> subprocess.Popen[bytes]:
    descriptor = theirs.fileno()
    words = [sys.executable, "-m", "benchmarks.applications.echo_socket", str(descriptor)]
    with theirs:
        return subprocess.Popen(words, pass_fds=[descriptor], cwd=_HERE)


@asynccontextmanager
async def echoed(*, on_one: bool) -> AsyncGenerator[Batch]:
    """Send 1 KB to a process that sends it back, over the same kind of socket and the same loop."""
    ours, theirs = socket.socketpair()
    with _start_echo(theirs) as process, ExitStack() as entered:
        ours.setblocking(False)
        transport, echo = await asyncio.get_running_loop().create_connection(_Echoed, sock=ours)
        entered.callback(process.kill)
        entered.callback(transport.abort)
        if on_one:
            entered.enter_context(on_one_processor(process.pid))
        await echo.send()

        async def batch(n: int) -> float:
            began = process_time() + cpu_s(process.pid)
            for _ in repeat(None, n):
                await echo.send()
            return process_time() + cpu_s(process.pid) - began

        yield batch


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
        ours=apart_on_one_processor,
        other=in_process,
        against="in the host's process",
        hold=30,
        aim=20,
        pairs=101,
        batch_s=0.01,
    ),
    *(
        Row(
            name=f"1 KB to a process that sends it back, {words}",
            ours=partial(echoed, on_one=on_one),
            other=in_process,
            against="a call in the host's process",
            pairs=31,
            batch_s=0.01,
        )
        for on_one, words in ((True, "on the same processor"), (False, "wherever it runs"))
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
