"""What a person waits for: importing the package, and one tool call from the command line. Wall-clock time."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, run
from sysconfig import get_path
from time import perf_counter

from benchmarks.frame import MILLISECONDS, Batch, Row

_FOLDER = Path(__file__).parent / "hello"
_SCRIPTS = Path(get_path("scripts"))
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


def _run(arguments: Sequence[str | Path]) -> None:
    run(arguments, check=True, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, cwd=_FOLDER, env=_ENVIRONMENT)


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
        name="what an author imports: FunctionProvider, tool",
        ours=partial(command, sys.executable, "-c", "from toolplug import FunctionProvider, tool"),
        other=partial(command, sys.executable, "-c", "from fastmcp import FastMCP"),
        against="FastMCP",
        unit=MILLISECONDS,
        pairs=9,
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
)
