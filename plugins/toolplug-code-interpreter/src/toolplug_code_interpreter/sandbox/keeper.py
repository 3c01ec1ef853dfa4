"""The process that keeps the limits of containers while code runs, and ends what a host that was killed has left.

It is a process because a thread of the host would measure too late whenever the event loop is busy. A container with a
control group is measured every 20 ms; the kernel keeps the limit in between. Without one, a container that could exceed
its limit before the next measurement is stopped, measured, and runs again for as long as its free memory lasts at the
pace `BYTES_A_SECOND`, one such container at a time.

The host writes lines to its standard input, which is a socket, and reads lines from it:

* `add INIT FOLDER`: resume a container, by its first process, and keep its limits; FOLDER is its control group, or `-`
* `remove INIT`: stop doing so; answered with `removed INIT`, after which its processes may be stopped
* `end`: exit. Without it, the end of the input means that the host was killed
* to the host, `over INIT memory` and `over INIT files`: a container was ended at this limit
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from toolplug_code_interpreter.sandbox.processes import disk_use, memory_use, resume_all, send_stop

INTERVAL_S = 0.02
BYTES_A_SECOND = 4 << 30
"""How fast code on one processor is expected to take memory: about three times what bytearrays take."""
FIRST_TURN_S = 0.002
SHORTEST_TURN_S = 0.001
LEFT_S = 1.0
"""How long after the end of a host there may be processes that it was about to start."""


class RunningContainer:
    """A running container. `turn_s`: how long it runs until it is stopped again; None if it need not be stopped."""

    def __init__(self, init: int, cgroup: Path | None) -> None:
        self.init = init
        self.cgroup = cgroup
        self.handle = os.pidfd_open(init)
        self.turn_s: float | None = FIRST_TURN_S
        self.due = time.monotonic()
        self.files = 0


class Keeper:
    """Keeps the limits of the containers of one host, which is at the other end of the socket."""

    def __init__(self, host: socket.socket, memory: int, hard_memory: int, files: int) -> None:
        self._host = host
        self._memory = memory
        self._hard_memory = hard_memory
        self._files = files
        self._processors = os.cpu_count() or 1
        self._kept: dict[int, RunningContainer] = {}

    def serve(self) -> bool:
        """Serve the host; False once it has ended without saying so."""
        for line in self._lines():
            what, *arguments = line.split()
            if what == "end":
                return True
            init = int(arguments[0])
            if what == "add":
                with suppress(ProcessLookupError):
                    self._kept[init] = RunningContainer(init, None if arguments[1] == "-" else Path(arguments[1]))
            else:
                self._forget(init)
                self._host.sendall(f"removed {init}\n".encode())
        return False

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the host; measure between them."""
        buffer = b""
        while True:
            each = min(self._kept.values(), key=lambda kept: kept.due, default=None)
            if not self._has_input(None if each is None else each.due - time.monotonic()):
                if each is not None:
                    self._measure(each)
                continue
            try:
                part = self._host.recv(65536)
            except ConnectionError:
                part = b""
            if not part:
                return
            *lines, buffer = (buffer + part).split(b"\n")
            yield from (line.decode() for line in lines)

    def _has_input(self, within_s: float | None) -> bool:
        return bool(select.select([self._host], [], [], None if within_s is None else max(within_s, 0))[0])

    def _measure(self, each: RunningContainer) -> None:
        if each.turn_s is not None:
            until = time.monotonic() + each.turn_s
            resume_all(each.init)
            running = [kept.due for kept in self._kept.values() if kept.turn_s is None]
            self._has_input(max(min([until, *running]) - time.monotonic(), SHORTEST_TURN_S))
            if each.cgroup is None:
                send_stop(each.init)
        used = memory_use(each.init, enough=self._memory)
        disk = disk_use(each.init, "/mnt")
        if used.bytes > self._memory or disk.files > self._files:
            signal.pidfd_send_signal(each.handle, signal.SIGKILL)
            self._forget(each.init)
            self._host.sendall(f"over {each.init} {'memory' if used.bytes > self._memory else 'files'}\n".encode())
            return
        each.due = time.monotonic()
        free_s = (self._memory - used.bytes) / (BYTES_A_SECOND * min(used.processes, self._processors))
        if each.cgroup is not None:
            self._allow_files(each, each.cgroup, disk.bytes)
            self._let_run(each)
        elif free_s >= INTERVAL_S:
            self._let_run(each)
        else:
            if each.turn_s is None:
                send_stop(each.init)
            each.turn_s = max(free_s, SHORTEST_TURN_S)

    def _let_run(self, each: RunningContainer) -> None:
        each.due += INTERVAL_S
        if each.turn_s is not None:
            resume_all(each.init)
        each.turn_s = None

    def _allow_files(self, each: RunningContainer, cgroup: Path, size: int) -> None:
        """Add the files of a container, which are in memory, to the limit of its control group."""
        if size != each.files:
            with suppress(OSError):  # it has ended
                (cgroup / "memory.max").write_text(str(self._hard_memory + size))
                each.files = size

    def _forget(self, init: int) -> None:
        kept = self._kept.pop(init, None)
        if kept is not None:
            os.close(kept.handle)


def end_marked(mark: str) -> None:
    """Kill the processes of bubblewrap that have this text in their environment, for `LEFT_S`.

    Bubblewrap ends with its parent only from some moment of its start on, and one of its processes waits for the other
    without end.
    """
    until = time.monotonic() + LEFT_S
    while time.monotonic() < until:
        for process in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{process}/environ", "rb") as environment:
                if mark.encode() in environment.read(4096):
                    os.kill(int(process), signal.SIGKILL)
        time.sleep(0.02)


def main(mark: str, memory: str, hard_memory: str, files: str) -> None:
    """Serve the host; the arguments are those of `watch.py`."""
    with suppress(OSError):  # needs root: otherwise it may have to wait for a processor before it can stop a container
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with socket.socket(fileno=0) as host:
        if not Keeper(host, int(memory), int(hard_memory), int(files)).serve():
            end_marked(mark)
