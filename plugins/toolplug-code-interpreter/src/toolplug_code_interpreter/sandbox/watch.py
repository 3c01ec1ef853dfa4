"""Limits of containers for all their processes together, kept by a process of their own (`keeper.py`)."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from toolplug.apart import Cgroup, limit_memory
from toolplug_code_interpreter.sandbox.interpreter import Unavailable
from toolplug_code_interpreter.settings import Settings

BYTES_A_FILE = 4096
"""A container may have as many files as its disk would hold of this size: each costs memory of the kernel."""
_KEEPER = "import sys; sys.path.append(sys.argv.pop(1)); from toolplug_code_interpreter.sandbox.keeper import main; "

Exceeded = Callable[[str], None]
"""Notes the limit for which a container was ended."""


class Watch:
    """Keeps the limits of running containers, by the process with which they end.

    `mark` is for the environment of bubblewrap: if toolplug is killed, processes that have it are killed.
    """

    def __init__(self, settings: Settings) -> None:
        self.mark = f"TOOLPLUG_CONTAINERS={token_hex(16)}"
        self.memory_exceeded = f"its processes used more than {settings.memory.human_readable()} of memory together"
        self._memory = int(settings.memory)
        self._files = max(int(settings.disk) // BYTES_A_FILE, 1000)
        self._opening = asyncio.Lock()
        self._process: Process | None = None
        self._socket: socket.socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._watched: dict[int, Exceeded] = {}
        self._removed: dict[int, asyncio.Future[None]] = {}

    async def open(self) -> None:
        """Start the process if it is not running. Raises `Unavailable`."""
        async with self._opening:
            if self._reading is not None and not self._reading.done():
                return
            await self.close()
            ours, theirs = socket.socketpair()
            limits = (self._memory, int(limit_memory(self._memory)["memory.max"]), self._files)
            folder = str(Path(__file__).parents[2])
            command = (sys.executable, "-I", "-S", "-c", f"{_KEEPER}main(*sys.argv[1:])", folder, self.mark)
            with theirs:
                try:
                    self._process = await asyncio.create_subprocess_exec(
                        *(*command, *map(str, limits)),
                        stdin=theirs.fileno(),
                        stdout=DEVNULL,
                        stderr=DEVNULL,
                        env={},
                        cwd="/",
                        start_new_session=True,  # an interrupt at the terminal is for toolplug alone
                    )
                except BaseException as error:
                    ours.close()
                    if isinstance(error, OSError):
                        raise Unavailable(f"{sys.executable} cannot be started: {error}") from None
                    raise
            ours.setblocking(False)
            self._socket = ours
            self._reading = asyncio.create_task(self._read(ours), name="code-interpreter-watch")

    def add(self, init: int, exceeded: Exceeded, cgroup: Cgroup | None) -> None:
        """Resume a container and watch it until it is removed. `cgroup`: its control group, None without one."""
        self._watched[init] = exceeded
        self._send(f"add {init} {'-' if cgroup is None else cgroup.folder}\n")

    async def remove(self, init: int) -> None:
        """Stop watching a container; its processes may be stopped afterwards. A limit that it was over is noted."""
        if init not in self._watched:
            return
        removed = self._removed.get(init)
        if removed is None:
            removed = self._removed[init] = asyncio.get_running_loop().create_future()
            self._send(f"remove {init}\n")
        await asyncio.shield(removed)

    async def close(self) -> None:
        """End the process."""
        if self._socket is None or self._process is None or self._reading is None:
            return
        self._send("end\n")
        await self._process.wait()
        await self._reading
        self._socket.close()
        self._socket = None

    def _send(self, line: str) -> None:
        assert self._socket is not None
        try:  # the buffer takes thousands of lines, and each container waits for its own
            self._socket.send(line.encode())
        except OSError:
            self._end_containers()

    async def _read(self, ours: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=ours.dup())
        try:
            async for line in reader:
                what, init, *limit = line.decode().split()
                if what == "removed":
                    self._answer(int(init))
                elif (exceeded := self._watched.get(int(init))) is not None:
                    exceeded(self.memory_exceeded if limit == ["memory"] else f"it had more than {self._files} files")
        except OSError:
            pass
        finally:
            writer.close()
            self._end_containers()

    def _answer(self, init: int) -> None:
        self._watched.pop(init, None)
        removed = self._removed.pop(init, None)
        if removed is not None and not removed.done():
            removed.set_result(None)

    def _end_containers(self) -> None:
        """End the containers whose limits are no longer kept."""
        for exceeded in list(self._watched.values()):
            exceeded("the process that keeps its limits has ended")
        for init in list(self._removed):
            self._answer(init)
