"""What a person waits for: an import, a tool call from the command line, a server that is ready. Wall-clock time.

What the command costs beside its libraries is CPU time, and what the server takes at rest is resident memory.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import requires
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import DEVNULL, run
from sysconfig import get_path
from time import perf_counter

from benchmarks.frame import MEBIBYTES, MILLISECONDS, Batch, Row, Unit
from benchmarks.process import Served, running

DEPENDENCIES = Unit(name="packages", scale=1)
_START_S = 60.0
_IDLE_S = 0.02
"""CPU seconds of an idle server in a second: timers, and no imports."""
_FOLDER = Path(__file__).parent / "hello"
_SCRIPTS = Path(get_path("scripts"))
_LIBRARIES = "import pydantic, pluggy, starlette.applications, yaml, prometheus_client"
_ENVIRONMENT = {**os.environ, "PATH": f"{_SCRIPTS}{os.pathsep}{os.environ['PATH']}"}


@asynccontextmanager
async def command(*arguments: str | Path) -> AsyncGenerator[Batch]:
    """Run a command to its end, output dropped; it must succeed."""

    async def batch(n: int) -> float:
        started = perf_counter()
        for _ in range(n):
            _run(arguments)
        return perf_counter() - started

    yield batch


@asynccontextmanager
async def command_cpu(*arguments: str | Path) -> AsyncGenerator[Batch]:
    """Run a command to its end; CPU time of it and of what it starts."""

    async def batch(n: int) -> float:
        before = _children_cpu_s()
        for _ in range(n):
            _run(arguments)
        return _children_cpu_s() - before

    yield batch


@asynccontextmanager
async def server_memory(*arguments: str | Path) -> AsyncGenerator[Batch]:
    """Start a server, wait until it is idle, and read its resident memory."""

    async def batch(n: int) -> float:
        return sum(_resident_at_rest(arguments) for _ in range(n))

    yield batch


@asynccontextmanager
async def server(*arguments: str | Path) -> AsyncGenerator[Batch]:
    """Start a server until its port takes a connection, then stop it; the stop is not timed."""

    async def batch(n: int) -> float:
        return sum(_ready(arguments) for _ in range(n))

    yield batch


@asynccontextmanager
async def mandatory_dependencies() -> AsyncGenerator[Batch]:
    """Count what `pip install toolplug` brings by name; the dependencies of those are theirs."""

    async def batch(n: int) -> float:
        return n * sum("extra ==" not in needed for needed in requires("toolplug") or ())

    yield batch


def _run(arguments: Sequence[str | Path]) -> None:
    run(arguments, check=True, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, cwd=_FOLDER, env=_ENVIRONMENT)


def _children_cpu_s() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ready(arguments: Sequence[str | Path]) -> float:
    begun = perf_counter()
    with _listening(arguments):
        return perf_counter() - begun


def _resident_at_rest(arguments: Sequence[str | Path]) -> int:
    with _listening(arguments) as served:
        before = -1.0
        while served.cpu_s() - before > _IDLE_S:
            before = served.cpu_s()
            time.sleep(1)
        return served.resident()


@contextmanager
def _listening(arguments: Sequence[str | Path]) -> Generator[Served]:
    """Run a server from now until it is no longer needed; entered when its port takes a connection."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    begun = perf_counter()
    with running([*arguments, "--port", str(port)], stdout=DEVNULL, stderr=DEVNULL) as process:
        while process.poll() is None and perf_counter() - begun < _START_S:
            with socket.socket() as client:
                listens = client.connect_ex(("127.0.0.1", port)) == 0
            if listens:
                yield Served(pid=process.pid, port=port)
                return
            time.sleep(0.002)
        raise RuntimeError(f"{arguments} does not listen")


ROWS = (
    Row(
        name="import toolplug",
        ours=partial(command, sys.executable, "-c", "import toolplug"),
        other=partial(command, sys.executable, "-c", "import fastmcp"),
        against="import fastmcp",
        hold=0.2,
        aim=0.15,
        unit=MILLISECONDS,
        pairs=9,
    ),
    Row(
        # Reading a signature needs pydantic and asyncio; prometheus-client and Starlette wait for who uses them.
        name="what an author imports: FunctionProvider, tool (with pydantic, asyncio)",
        ours=partial(command, sys.executable, "-c", "from toolplug import FunctionProvider, tool"),
        other=partial(command, sys.executable, "-c", "from fastmcp import FastMCP"),
        against="FastMCP",
        hold=1 / 6,
        aim=1 / 8,
        unit=MILLISECONDS,
        pairs=9,
    ),
    Row(
        name="mandatory dependencies",
        ours=mandatory_dependencies,
        hold=11,
        aim=10,
        unit=DEPENDENCIES,
        pairs=3,
        batch_s=0,
    ),
    Row(
        name="whole command: toolplug call hello",
        ours=partial(command, _SCRIPTS / "toolplug", "call", "hello", "name=World"),
        # FastMCP, "CLI": call a tool of a local file.
        other=partial(command, _SCRIPTS / "fastmcp", "call", "server.py", "hello", "name=World"),
        against="fastmcp call hello",
        hold=0.5,
        aim=0.3,
        unit=MILLISECONDS,
        pairs=9,
    ),
    Row(
        name="toolplug serve notes.py: ready",
        ours=partial(server, _SCRIPTS / "toolplug", "serve", _FOLDER / "notes.py"),
        # FastMCP, "Running your server": serve a local file over HTTP.
        other=partial(server, _SCRIPTS / "fastmcp", "run", _FOLDER / "server.py", "--transport", "http", "--no-banner"),
        against="fastmcp run server.py: ready",
        hold=0.6,
        aim=0.5,
        unit=MILLISECONDS,
        pairs=9,
        batch_s=0,
    ),
    Row(
        name="CPU of toolplug call hello",
        ours=partial(command_cpu, _SCRIPTS / "toolplug", "call", "hello", "name=World"),
        other=partial(command_cpu, sys.executable, "-c", _LIBRARIES),
        against="importing five of its libraries",
        hold=3.5,
        aim=2.5,
        unit=MILLISECONDS,
        pairs=9,
        batch_s=0,
    ),
    Row(
        name="memory of toolplug serve notes.py at rest",
        ours=partial(server_memory, _SCRIPTS / "toolplug", "serve", _FOLDER / "notes.py"),
        other=partial(
            server_memory, _SCRIPTS / "fastmcp", "run", _FOLDER / "server.py", "--transport", "http", "--no-banner"
        ),
        against="fastmcp run server.py",
        hold=0.7,
        aim=0.6,
        unit=MEBIBYTES,
        pairs=5,
        batch_s=0,
    ),
)
