"""Sandboxes of bubblewrap: what a container sees of the machine, and its first process.

Everything that code can write to is one tmpfs of a fixed size, `/mnt`, with the working folder, `/tmp` and `/dev/shm`;
the rest is read-only. Its network has no interface but its own loopback. Where toolplug is root, the code runs as a
user of its own, outside of user namespaces: none of its processes ever has the user id of root.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple, TypeVar

from toolplug.apart import Cgroup, Cgroups, NoCgroups, limit_memory, open_cgroups, remove_empty
from toolplug.runtime import in_own_thread
from toolplug_code_interpreter.sandbox.interpreter import HOME, Interpreter, Unavailable, interpreter
from toolplug_code_interpreter.sandbox.processes import descendants
from toolplug_code_interpreter.sandbox.seccomp import compiled_filter
from toolplug_code_interpreter.settings import Settings

WORKING_FOLDER = "/mnt/data"

_WORKER = "/opt/worker"
READY = b"toolplug"
_SETPRIV = "/usr/bin/setpriv"
_SYSTEM = ("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/fonts", "/usr/share/zoneinfo")
_LINKED = ("/bin", "/lib", "/lib32", "/lib64")
_OF_ETC = ("/etc/ld.so.cache", "/etc/alternatives")
_COVERED = ("/proc/sys", "/proc/1")
"""Settings of the kernel; and bubblewrap's own process: in a user namespace the code has its user id, and could write
into its memory, which neither the filter of system calls nor any limit is for."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/shm": "/mnt/shm",
    "/tmp": "/mnt/tmp",
}
_ENVIRONMENT = {
    "HOME": WORKING_FOLDER,
    "LANG": "C.UTF-8",
    "LOGNAME": "sandbox",
    "MPLBACKEND": "module://figures",
    "MPLCONFIGDIR": "/mnt/tmp/matplotlib",
    "OMP_NUM_THREADS": "4",  # threads count as processes, and their stacks as memory: not as many as the host has cores
    "OPENBLAS_NUM_THREADS": "4",
    "PATH": "/usr/bin:/bin",
    "TMPDIR": "/mnt/tmp",
    "USER": "sandbox",
    "XDG_CACHE_HOME": "/mnt/tmp/cache",
}
_OLDEST_BUBBLEWRAP = (0, 8)
_OLDEST_KERNEL = (5, 14)
"""The first Linux that counts processes for each user namespace and not for the user of the machine."""
_UID = 1000
_START_S = 10.0
_LAST_WORDS = 2000
_BUBBLEWRAP = 2
"""Processes of bubblewrap in each container, which do not count as the code's."""
_T = TypeVar("_T")


class Sandbox(NamedTuple):
    """A running container.

    * `init`: the process with which all others end, as the host numbers it; `handle` refers to it
    * `worker`: the process that runs the code and answers on the socket
    * `stdout`, `stderr`: the reading ends of pipes, which do not block
    * `cgroup`: the control group of all its processes, None where there is none
    """

    process: Process
    init: int
    handle: int
    worker: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    stdout: int
    stderr: int
    cgroup: Cgroup | None

    def kill(self) -> None:
        """End every process of the container; from any thread, as long as it is not closed."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    async def close(self) -> None:
        """End every process of the container, wait for that, and close what the host has open."""
        self.kill()
        await self.process.wait()  # bubblewrap ends with its init; to kill it as well would race with asyncio's wait
        self.writer.close()
        for file in (self.handle, self.stdout, self.stderr):
            os.close(file)
        if self.cgroup is not None:
            await in_own_thread(partial(remove_empty, self.cgroup))


async def complete(task: asyncio.Task[_T]) -> _T:
    """Return the result of a task, which goes on to its end if the caller is cancelled; the caller waits for that."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        raise


class Launcher:
    """Starts sandboxes, all with the same rules. `cgroups` makes their control groups, or says why they have none."""

    def __init__(
        self, bubblewrap: str, python: Interpreter, rules: bytes, settings: Settings, cgroups: Cgroups | NoCgroups
    ) -> None:
        self.cgroups = cgroups
        self._bubblewrap = bubblewrap
        self._python = python
        self._rules = rules
        self._settings = settings
        self._limits = {**limit_memory(settings.memory), "pids.max": str(settings.processes + _BUBBLEWRAP)}
        folder = files("toolplug_code_interpreter.sandbox")
        self._sources = {name: folder.joinpath(name).read_bytes() for name in ("worker.py", "figures.py")}

    def close(self) -> None:
        """Remove what control groups there are; all sandboxes have ended."""
        if isinstance(self.cgroups, Cgroups):
            self.cgroups.close()

    async def start(self, uid: int | None, mark: str) -> Sandbox:
        """Start a sandbox; its processes have the user id `uid` where toolplug is root. Raises `Unavailable`.

        `mark` is a variable in the environment of bubblewrap, which the code does not see.

        A start that is cancelled goes on to its end, and the sandbox is ended then: bubblewrap that is killed while it
        starts can leave its first process behind.
        """
        starting = asyncio.create_task(self._start_in_cgroup(uid, mark), name="code-interpreter-start")
        try:
            return await complete(starting)
        except asyncio.CancelledError:
            if starting.exception() is None:
                await starting.result().close()
            raise

    async def _start_in_cgroup(self, uid: int | None, mark: str) -> Sandbox:
        if isinstance(self.cgroups, NoCgroups):
            return await self._start(uid, mark, None)
        try:
            cgroup = self.cgroups.create(self._limits)
        except OSError as error:
            raise Unavailable(f"a control group cannot be made: {error.filename}: {error.strerror}") from None
        try:
            return await self._start(uid, mark, cgroup)
        except BaseException:
            await in_own_thread(partial(remove_empty, cgroup))
            raise

    async def _start(self, uid: int | None, mark: str, cgroup: Cgroup | None) -> Sandbox:
        with ExitStack() as opened:
            ours, theirs = (opened.enter_context(end) for end in socket.socketpair())
            stdout, stderr, status = (_pipe(opened) for _ in range(3))
            rules, *sources = [_file(opened, data) for data in (self._rules, *self._sources.values())]
            arguments = [
                *self._rules_of_sandbox(uid),
                *("--seccomp", str(rules), "--info-fd", str(status.write)),
                *(each for name, file in zip(self._sources, sources, strict=True) for each in _place(name, file)),
                *("--remount-ro", "/"),
            ]
            listed = _file(opened, b"".join(each.encode() + b"\0" for each in arguments))
            entering = () if cgroup is None else cgroup.command_prefix
            try:
                process = await asyncio.create_subprocess_exec(
                    *(*entering, self._bubblewrap, "--args", str(listed), "--", *self._command(uid, theirs.fileno())),
                    stdin=DEVNULL,
                    stdout=stdout.write,
                    stderr=stderr.write,
                    pass_fds=(listed, status.write, rules, *sources, theirs.fileno()),
                    env=dict([mark.split("=", 1)]),
                    cwd="/",
                )
            except OSError as error:
                raise Unavailable(f"bubblewrap cannot be started: {error}") from None
            theirs.close()
            reader, writer = await asyncio.open_connection(sock=ours.dup())
            try:
                async with asyncio.timeout(_START_S):
                    ready = await reader.readexactly(len(READY))
                init = json.loads(os.read(status.read, 4096))["child-pid"] if ready == READY else 0
                handle, [worker, *_] = os.pidfd_open(init), descendants(init)
                pipes = os.dup(stdout.read), os.dup(stderr.read)
                return Sandbox(process, init, handle, worker, reader, writer, *pipes, cgroup)
            except BaseException as error:
                _end_start(process)
                await process.wait()
                writer.close()
                if isinstance(error, (asyncio.IncompleteReadError, OSError, ValueError)):
                    raise Unavailable(f"bubblewrap cannot start a container: {_last_words(stderr.read)}") from None
                raise

    def _rules_of_sandbox(self, uid: int | None) -> Iterator[str]:
        disk = str(self._settings.disk)
        yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
        if uid is None:
            yield from ("--unshare-user", "--disable-userns", "--uid", str(_UID), "--gid", str(_UID))
        yield from ("--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv")
        for name, value in _ENVIRONMENT.items():
            yield from ("--setenv", name, value)
        yield from ("--setenv", "LD_LIBRARY_PATH", f"{HOME}/lib")
        for path in _folders(
            [*_SYSTEM, *_OF_ETC, f"{_WORKER}/worker.py", *(bind.target for bind in self._python.binds)]
        ):
            yield from ("--dir", path)
        for path in _SYSTEM:
            yield from ("--ro-bind-try", path, path)
        for path in _LINKED:
            yield from ("--symlink", os.readlink(path), path) if os.path.islink(path) else ("--ro-bind-try", path, path)
        for path in _OF_ETC:
            yield from ("--ro-bind-try", path, path)
        for bind in self._python.binds:
            yield from ("--ro-bind", bind.source, bind.target)
        for path in self._python.covered:
            yield from ("--ro-bind", "/dev/null", path)  # a device that cannot be opened: as if there were no file
        yield from ("--proc", "/proc")
        for path in _COVERED:
            yield from ("--size", "4096", "--tmpfs", path, "--remount-ro", path)
        yield from ("--dir", "/dev")
        for name in _DEVICES:
            yield from ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
        for path, target in _LINKS.items():
            yield from ("--symlink", target, path)
        yield from ("--perms", "0755", "--size", disk, "--tmpfs", "/mnt")
        for path in (WORKING_FOLDER, "/mnt/tmp", "/mnt/shm"):
            yield from ("--perms", "0777", "--dir", path)
        yield from ("--chdir", WORKING_FOLDER)

    def _command(self, uid: int | None, channel: int) -> Sequence[str]:
        settings = self._settings
        python = (self._python.command, "-I", "-S", "-B", f"{_WORKER}/worker.py")
        limits = (settings.memory, settings.processes, settings.disk, settings.output)
        worker = (*python, str(channel), *map(str, limits), _WORKER, *self._python.packages)
        if uid is None:
            return worker
        ids = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
        return (_SETPRIV, *ids, "--no-new-privs", *worker)


def _folders(paths: Iterable[str]) -> Iterator[str]:
    """Yield the folders above these paths, the outer ones first: bubblewrap would make them for root alone."""
    found = {folder for path in paths for folder in PurePosixPath(path).parents}
    return map(str, sorted(found - {PurePosixPath("/")}))


class _Pipe(NamedTuple):
    read: int
    write: int


def _pipe(opened: ExitStack) -> _Pipe:
    """Return a new pipe; its reading end does not block."""
    pipe = _Pipe(*os.pipe2(os.O_CLOEXEC))
    os.set_blocking(pipe.read, False)
    opened.callback(os.close, pipe.read)
    opened.callback(os.close, pipe.write)
    return pipe


def _file(opened: ExitStack, data: bytes) -> int:
    """Return a file in memory that bubblewrap reads."""
    file = os.memfd_create("toolplug", os.MFD_CLOEXEC)
    opened.callback(os.close, file)
    os.pwrite(file, data, 0)
    return file


def _place(name: str, file: int) -> Sequence[str]:
    return ("--perms", "0444", "--ro-bind-data", str(file), f"{_WORKER}/{name}")


def _end_start(process: Process) -> None:
    """Kill a bubblewrap that has not started its command, with the init that may wait for it for ever."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)  # so that it starts no further process
        started = descendants(process.pid)
        process.kill()
        for each in started:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


def _last_words(stderr: int) -> str:
    try:
        said = os.read(stderr, _LAST_WORDS).decode("utf-8", "replace").strip()
    except OSError:
        said = ""
    return said or "it said nothing"


def launcher(settings: Settings) -> Launcher:
    """Return what starts sandboxes on this machine. Blocks for a moment. Raises `Unavailable`."""
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise Unavailable("bubblewrap is not installed: `apt-get install bubblewrap`, or the package of your system")
    version = _version(bubblewrap)
    if version < _OLDEST_BUBBLEWRAP:
        raise Unavailable(
            f"{bubblewrap} is bubblewrap {_version_text(version)}, and {_version_text(_OLDEST_BUBBLEWRAP)} is needed"
        )
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise Unavailable("the kernel does not list the children of a process (CONFIG_PROC_CHILDREN)")
    if os.geteuid() == 0 and not os.path.exists(_SETPRIV):
        raise Unavailable(f"{_SETPRIV} is not there: `apt-get install util-linux`, or the package of your system")
    if os.geteuid() != 0 and _numbers(os.uname().release) < _OLDEST_KERNEL:
        raise Unavailable(f"Linux {os.uname().release} is older than {_version_text(_OLDEST_KERNEL)}")
    python, rules = interpreter(settings.python), compiled_filter()
    try:
        cgroups: Cgroups | NoCgroups = open_cgroups()
    except NoCgroups as error:
        cgroups = error
    return Launcher(bubblewrap, python, rules, settings, cgroups)


def _version(bubblewrap: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([bubblewrap, "--version"], capture_output=True, timeout=5, check=True, text=True, env={})
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{bubblewrap} cannot be asked for its version: {error}") from None
    return _numbers(done.stdout.split()[-1])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def _version_text(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
