"""A server in a process of its own, on a processor of its own, and what it uses.

The clients are the process that measures; they keep to the other processors, so that neither side waits for the other.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO

Output = IO[str] | int | None

_END_S = 10
_PROCESSORS = frozenset(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that listens on a port of the loopback."""

    pid: int
    port: int

    def cpu_s(self) -> float:
        """CPU time that all its threads have used up to now."""
        return time.clock_gettime((~self.pid << 3) | 2)  # clock_getcpuclockid(3): the clock of a process

    def resident(self) -> int:
        """Bytes of it that are in memory now."""
        return resident(self.pid)


def resident(pid: int) -> int:
    """Bytes of a process that are in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@contextmanager
def started(module: str, *arguments: str) -> Generator[Served]:
    """Run `python -m module`, which writes its port as its only line, until it is no longer needed."""
    with running([sys.executable, "-m", module, *arguments], stdout=PIPE) as process:
        assert process.stdout is not None
        yield Served(pid=process.pid, port=int(process.stdout.readline()))


@contextmanager
def running(command: Sequence[str | Path], *, stdout: Output = None, stderr: Output = None) -> Generator[Popen[str]]:
    """Run a server's command on the servers' processor until it is no longer needed."""
    _raise_open_files()
    with _apart() as first, Popen(command, stdout=stdout, stderr=stderr, text=True) as process:
        try:
            os.sched_setaffinity(process.pid, first)
            yield process
        finally:
            process.terminate()
            with suppress(TimeoutExpired):
                process.wait(_END_S)
            process.kill()


@contextmanager
def everywhere() -> Generator[None]:
    """Let this process and what it starts use every processor: a browser is many processes."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _PROCESSORS)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _apart() -> Generator[set[int]]:
    """Keep this process off the servers' processor; a machine that has but one is shared."""
    first = {min(_PROCESSORS)}
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _PROCESSORS - first or first)
    try:
        yield first
    finally:
        os.sched_setaffinity(0, before)


def _raise_open_files() -> None:
    """Allow as many sockets as the machine does; the server inherits it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
