"""The processes of `toolplug serve --workers N`: a parent without a host, and workers that serve one port together.

Each worker listens on a socket of its own with `SO_REUSEPORT`, so that the kernel spreads connections evenly; one
socket that all accept from gives some workers ten times as many as others. The parent keeps the port by a bound socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from toolplug.cli.serving.listening import bind, check_reach, url_of
from toolplug.cli.serving.worker import WorkerPlace
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import NOTHING_CODED, ConfigFiles
from toolplug.host.file.user_auth_entries import list_user_auth
from toolplug.host.host import reader_of
from toolplug.packages.entry_points import find_installed

MOST_DEATHS = 5
WITHIN_S = 30.0
"""The server ends when this many workers have died within this time."""
FAILED = 1

_LONGEST_FOLDER = 60
"""The address of a socket has at most 107 bytes."""
_LOG = logging.getLogger("toolplug.cli.serve")


def serve_with_workers(
    files: ConfigFiles, *, address: str, port: int, count: int, insecure_no_auth: bool, locked: bool = False
) -> int:
    """Serve with this many processes until a signal, and return the exit code. Raises `ConfigError`."""
    configuration = reader_of(locked=locked)(files, os.environ, find_installed(), NOTHING_CODED)
    if configuration.store.in_memory:
        message = "store: memory:// is in the memory of one process, and --workers starts several"
        hint = "write store: sqlite:///./state.db, or run one process"
        raise ConfigError([Problem(code="store_not_shared", message=message, path="store", hint=hint)])
    if sys.platform != "linux":
        message = "--workers needs Linux, where the kernel spreads connections among processes"
        raise ConfigError([Problem(code="not_available", message=message, hint="run one process")])
    has_auth = configuration.settings.auth is not None
    user_auth = [*list_user_auth(configuration.providers, configuration.servers)]
    check_reach(address, has_auth=has_auth, insecure_no_auth=insecure_no_auth, user_auth=user_auth)
    with ExitStack() as life:
        port_kept = life.enter_context(bind(address, port))
        # Only now: another server of the same user could join a port that was bound with SO_REUSEPORT, and could bind
        # one with SO_REUSEADDR until the first worker listens.
        port_kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        port_kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        folder = tempfile.mkdtemp(prefix="toolplug-", dir=_temporary_folder())
        life.callback(shutil.rmtree, folder, ignore_errors=True)
        workers = Workers(url_of(port_kept), port_kept.getsockname()[1], count, folder)
        return asyncio.run(workers.run())


def _temporary_folder() -> str | None:
    return None if len(tempfile.gettempdir()) < _LONGEST_FOLDER else "/tmp"


class _WorkerProcess(NamedTuple):
    process: Process
    channel: socket.socket


class Workers:
    """Starts workers, again when one dies, and ends them; `run` can be called once."""

    def __init__(self, url: str, port: int, count: int, folder: str) -> None:
        self._url = url
        self._port = port
        self._count = count
        self._folder = folder
        self._running: dict[int, _WorkerProcess] = {}
        self._deaths: deque[float] = deque(maxlen=MOST_DEATHS)
        self._ready: set[int] = set()
        self._begun = asyncio.Event()
        self._has_served = False
        self._stopping = False
        self._code = 0

    async def run(self) -> int:
        """Run the workers until a signal, and return the exit code: 0 if all have ended by themselves."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._send, signal.SIGHUP)
        async with asyncio.TaskGroup() as group:
            # The first one alone: if it cannot start, neither can the others.
            first = group.create_task(self._keep(1))
            first.add_done_callback(lambda _: self._begun.set())
            await self._begun.wait()
            for number in range(2, self._count + 1):
                if not self._stopping:
                    group.create_task(self._keep(number))
        return self._code

    async def _keep(self, number: int) -> None:
        """Run the worker of this number, one process after the other, until the server stops."""
        while not self._stopping:
            worker = self._running[number] = await self._start(number)
            listening = asyncio.create_task(self._hear(number, worker))
            code = await worker.process.wait()
            # It ends with the worker: the other end of its channel is closed then.
            await listening
            worker.channel.close()
            del self._running[number]
            self._on_end(number, worker.process.pid, code)
            self._ready.discard(number)

    async def _start(self, number: int) -> _WorkerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            place = WorkerPlace(number=number, count=self._count, channel=theirs.fileno(), folder=self._folder)
            process = await asyncio.create_subprocess_exec(
                *_command(self._port, place),
                pass_fds=[place.channel],
                # The terminal sends SIGINT to its whole process group: only the parent is to receive it.
                process_group=0,
            )
        if self._stopping:
            with suppress(ProcessLookupError):
                process.terminate()
        return _WorkerProcess(process, ours)

    async def _hear(self, number: int, worker: _WorkerProcess) -> None:
        """Wait until the worker says that it serves, which it does once, or has ended."""
        with suppress(OSError):
            screen = await asyncio.get_running_loop().sock_recv(worker.channel, 65536)
            if screen:
                self._serves(number, screen.decode().rstrip("\0"))

    def _serves(self, number: int, screen: str) -> None:
        self._ready.add(number)
        self._begun.set()
        if len(self._ready) == self._count and not self._has_served:
            self._has_served = True
            pids = ", ".join(f"{number}: process {self._running[number].process.pid}" for number in sorted(self._ready))
            _LOG.info("%d workers serve (%s)", self._count, pids)
            sys.stderr.write(f"toolplug listening on {self._url}\n{screen}")
            sys.stderr.flush()

    def _on_end(self, number: int, pid: int, code: int) -> None:
        """Take note of the end of a worker; another one is started unless the server stops."""
        if self._stopping:
            # One that had not served yet has nothing to finish, wherever in its start the signal met it.
            failed = number in self._ready and code not in (0, -signal.SIGTERM)
            self._code = self._code or (FAILED if failed else 0)
            return
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has ended with exit code {code}"
        if code > 0 and not self._has_served:
            _LOG.error("worker %d %s before it served", number, how)
            self._fail(code)
            return
        _LOG.warning("worker %d (process %d) %s; another one is started", number, pid, how)
        if not code:
            return
        now = asyncio.get_running_loop().time()
        self._deaths.append(now)
        if len(self._deaths) == MOST_DEATHS and now - self._deaths[0] < WITHIN_S:
            _LOG.error("%d workers have died within %g s: the server ends", MOST_DEATHS, WITHIN_S)
            self._fail(FAILED)

    def _fail(self, code: int) -> None:
        self._code = code
        self._stopping = True
        self._send(signal.SIGTERM)

    def _stop(self) -> None:
        """Let the workers end; the second time at once."""
        self._stopping = True
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._running.values():
            with suppress(ProcessLookupError):
                worker.process.send_signal(number)


def _command(port: int, place: WorkerPlace) -> Sequence[str]:
    """Return the command of this process, for one worker; the last `--port` of a command line applies."""
    return [sys.executable, *sys.orig_argv[1:], "--port", str(port), "--worker", place.text()]
