"""An MCP server as a child process: start, three pipes, and the end of it and of everything that it started.

    stdin   `write`, one whole line at a time        stdout  `lines`, bounded        stderr  `StderrTail`

The child leads a process group of its own, so that the end reaches what it forked as well.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import NamedTuple, cast

from toolplug.catalog.text import clean_text, in_one_line, pluralize
from toolplug.config.masking import find_secrets, forms_of, looks_secret, mask_secrets, secrets_in
from toolplug.parts.mcp.client.connection import ConnectionFailed
from toolplug.parts.mcp.client.server_config import Command, is_command_line
from toolplug.parts.mcp.limits import MAX_MESSAGE_BYTES

_LOG = logging.getLogger("toolplug.mcp")
_MINUTE_S = 60.0
_PER_MINUTE = 10
_MAX_CHARACTERS = 500


class RateLimitedLog:
    """Logs at most `_PER_MINUTE` lines a minute; the first line of the next minute gives the number of omitted ones."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since = time.monotonic()
        self._written = 0
        self._left_out = 0

    def takes(self) -> bool:
        """Return whether a line would be logged now. If not, it is counted, and the caller need not build it."""
        now = time.monotonic()
        if now - self._since >= _MINUTE_S:
            self._since, self._written = now, 0
        if self._written < _PER_MINUTE:
            return True
        self._left_out += 1
        return False

    def write(self, level: int, what: str, text: str) -> None:
        """Log `what: text`, cut to 500 characters, or count it."""
        if not self.takes():
            return
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        more = f" ({pluralize(left_out, 'line')} left out before)" if left_out else ""
        self._log.log(level, "%s: %s%s", what, text[:_MAX_CHARACTERS], more)


_CHUNK = 64 * 1024


class LineTooLong(Exception):
    """A line exceeds the limit; the rest of it is not read."""


class BoundedLines:
    """The lines of a stream, without their line feeds. It buffers at most one line and one chunk."""

    def __init__(self, stream: asyncio.StreamReader, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._kept = bytearray()

    @property
    def ready(self) -> bool:
        """Return whether the next line is buffered already."""
        return b"\n" in self._kept

    async def next(self) -> bytes | None:
        """Return the next line, None at the end of the stream. Raises `LineTooLong` and the errors of the stream."""
        searched = 0
        while (end := self._kept.find(b"\n", searched)) < 0:
            searched = len(self._kept)
            if searched > self._max_bytes:
                raise LineTooLong
            chunk = await self._stream.read(_CHUNK)
            if not chunk:
                return self._take(searched) or None
            self._kept += chunk
        if end > self._max_bytes:
            raise LineTooLong
        return self._take(end)

    def _take(self, end: int) -> bytes:
        line = bytes(self._kept[:end])
        del self._kept[: end + 1]
        return line


_BEGIN = re.compile(rb"Traceback \(most recent call last")
_FRAME = re.compile(rb"""File "(?P<file>[^"]+)", line (?P<line>\d+)|(?P<path>/\S+\.py):(?P<number>\d+) in """)
_RAISED = re.compile(rb"(?:[A-Za-z_]\w*\.)*(?P<type>[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Group))(?::|$)")
_LIBRARIES = re.compile(rb"[/\\](?:site-packages|dist-packages|lib[/\\]python[\d.]+)[/\\]|^<")


class TracebackReader:
    """Finds the line of a child's own Python code that raised.

    It reads the tracebacks of the interpreter, and those of rich, which the SDK's servers log.
    """

    def __init__(self) -> None:
        self._inside = False
        self._place = b""

    def read(self, line: bytes) -> bytes:
        """Return `KeyError at server.py:9` at the end of a traceback through the child's own code, else nothing."""
        if _BEGIN.search(line):
            self._inside, self._place = True, b""
        elif self._inside and (frame := _FRAME.search(line)):
            file = frame["file"] or frame["path"]
            if not _LIBRARIES.search(file):
                self._place = b"%b:%b" % (file, frame["line"] or frame["number"])
        elif self._inside and (raised := _RAISED.match(line.strip())):
            self._inside, place = False, self._place
            if place:
                return b"%b at %b" % (raised["type"], place)
        return b""


_KEPT = 2048
_TOLD = 400


class StderrTail:
    """Reads standard error to its end, so that the server never blocks on it, and logs some lines a minute.

    The values in `secrets` are masked in the log and in the text.
    """

    def __init__(self, what: str, log: RateLimitedLog, secrets: Sequence[str]) -> None:
        self._what = what
        self._log = log
        self._secrets = secrets
        self._kept = b""
        self._traceback = TracebackReader()

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Read until the stream ends. A line is logged when it is complete, a very long one in pieces."""
        begun = b""
        while chunk := await stream.read(_CHUNK):
            self._kept = (self._kept + chunk)[-_KEPT:]
            *whole, begun = (begun + chunk).split(b"\n")
            for line in whole if len(begun) <= _CHUNK else [*whole, begun]:
                self._say(line)
            if len(begun) > _CHUNK:
                begun = b""
            await asyncio.sleep(0)
        self._say(begun)

    def text(self) -> str:
        """Return the end of the output as one clean line, as a traceback ends with its error; empty without output."""
        said = self._readable(self._kept)
        return said if len(said) <= _TOLD else f"…{said[-_TOLD:]}"

    def _say(self, line: bytes) -> None:
        raised = self._traceback.read(line[:_KEPT])
        if raised:  # the log of its lines may have been cut before this one
            _LOG.error("%s: %s", self._what, self._readable(raised))
        if line.strip() and self._log.takes() and (text := self._readable(line[:_KEPT])):
            self._log.write(logging.INFO, self._what, text)

    def _readable(self, said: bytes) -> str:
        return mask_secrets(clean_text(in_one_line(said.decode(errors="replace"))), self._secrets)


_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""On Windows SIGTERM ends a process as SIGKILL does elsewhere."""
_PROC = Path("/proc")
_STARTED = 19
"""The field of `/proc/<pid>/stat` after the name, counted from the state: proc_pid_stat(5)."""
_ENDINGS_MATTER = sys.platform == "win32"
"""Windows looks for a program with the ending .exe only, and starts scripts by their whole name only."""
_MAX_DESCENDANTS = 1_000
"""That are looked for in one process tree: its own group ends in any case."""


class Descendant(NamedTuple):
    """A process, with its start time, since process ids are reused."""

    pid: int
    started: int


def descendants(pid: int) -> Collection[Descendant]:
    """Return the living descendants, including those in other sessions and groups; none on systems without `/proc`.

    The time grows with their number, at most 1,000, and not with that of the machine's processes: this runs on the
    event loop. A process whose parent has ended is not found.
    """
    waiting = [pid]
    found: list[Descendant] = []
    while waiting and len(found) < _MAX_DESCENDANTS:
        for child in _children(waiting.pop()):
            started = _read_start_time(child)
            if started is not None:
                found.append(Descendant(child, started))
                waiting.append(child)
    return found


def kill(processes: Collection[Descendant]) -> None:
    """Kill those of the processes that are still alive."""
    for process in processes:
        if _read_start_time(process.pid) == process.started:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, _KILL)


def _children(pid: int) -> Iterator[int]:
    """Yield the children of a process, each of which one of its threads has started."""
    try:
        threads = os.listdir(_PROC / str(pid) / "task")
    except OSError:
        return
    for thread in threads:
        with suppress(OSError):
            yield from map(int, (_PROC / str(pid) / "task" / thread / "children").read_text("ascii").split())


def _read_start_time(pid: int) -> int | None:
    fields = _fields(pid)
    return int(fields[_STARTED]) if fields else None


def _fields(pid: int) -> list[str]:
    """Return the fields of a process after its name, which may contain any character; empty if it has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


POLITE_S = 1.0
TERMINATE_S = 1.5
KILL_S = 1.0
"""How long an end waits: for the end of stdin to be noticed, for SIGTERM, and for SIGKILL."""

_LAST_OUTPUT_S = 0.3
_POLL_S = 0.02
_MAX_UNREAD_BYTES = 1024 * 1024
_LONG_VALUE = 16
_MAX_CALLED = 120

_CHILD_LOG = logging.getLogger("toolplug.mcp.child_process")


class _Pipes(SubprocessStreamProtocol):
    """The pipes as streams. They end soon after the process does, even if another process still holds them open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=64 * 1024, loop=loop)
        self.exited: asyncio.Event = asyncio.Event()
        self.stdin_lost: bool = False
        self._loop_of_pipes = loop
        self._process: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._process = cast(
            "asyncio.SubprocessTransport", transport
        )  # what the base class is given, less narrowly typed

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        self.stdin_lost = self.stdin_lost or fd == 0

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()
        self._loop_of_pipes.call_later(_LAST_OUTPUT_S, self._close_pipes)

    def _close_pipes(self) -> None:
        if self._process is not None:
            self._process.close()


class Child:
    """A running child process; call `start` and `aclose` once each. `called` is its command line, for the log."""

    def __init__(
        self, command: Command, process: asyncio.SubprocessTransport, pipes: _Pipes, log: RateLimitedLog
    ) -> None:
        stdin, stdout, stderr = pipes.stdin, pipes.stdout, pipes.stderr
        if stdin is None or stdout is None or stderr is None:
            raise ValueError("a child needs all three pipes")
        secrets = secrets_of(command)
        self.log: RateLimitedLog = log
        self.called: str = _name_command(command, secrets)
        self.lines: BoundedLines = BoundedLines(stdout, MAX_MESSAGE_BYTES)
        self._process = process
        self._pipes = pipes
        self._stdin = stdin
        self._stdout = stdout
        self._writing = asyncio.Lock()
        self._words = StderrTail(f"stderr of {self.called!r}", log, secrets)
        self._listening = asyncio.create_task(self._words.follow(stderr), name="toolplug-mcp-stderr")

    @classmethod
    async def start(cls, command: Command, *, environment: Mapping[str, str], folder: Path) -> Child:
        """Start the command without a shell, in `folder` unless it names its own. Raises `ConnectionFailed`."""
        loop = asyncio.get_running_loop()
        pipes = _Pipes(loop)
        spawning = asyncio.create_task(_spawn(loop, pipes, command, environment, command.cwd or folder))
        try:
            process = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            await cls(command, await spawning, pipes, RateLimitedLog(_CHILD_LOG)).aclose()
            raise
        return cls(command, process, pipes, RateLimitedLog(_CHILD_LOG))

    async def write(self, line: bytes) -> None:
        """Write one line and wait until the pipe has taken it. If cancelled, it has written the whole line or nothing.

        Raises `ConnectionError` if the child no longer reads.
        """
        async with self._writing:
            self._stdin.write(line)
            await self._stdin.drain()

    def write_at_once(self, line: bytes) -> None:
        """Write a short line without waiting for earlier ones; it is dropped if the child has not read for a while."""
        if self._stdin.transport.get_write_buffer_size() < _MAX_UNREAD_BYTES:
            self._stdin.write(line)

    async def writable(self) -> None:
        """Wait until no write is pending."""
        async with self._writing:
            pass

    async def exit_reason(self) -> str:
        """Return how the process ended and its last output, for the text of an error; empty if there is neither.

        It waits shortly for both, since the output ends before the process does.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_OUTPUT_S):
                await self._pipes.exited.wait()
                await asyncio.wait({self._listening})
        code = self._process.get_returncode()
        ended = "" if code is None else f"it ended with {_exit(code)}"
        said = self._words.text()
        return "; ".join(part for part in (ended, f"it said: {said}" if said else "") if part)

    async def aclose(self) -> None:
        """End the child and its process group: close its input, then SIGTERM, then SIGKILL. Takes at most four seconds.

        Processes that it started end as well, also those that have left the group.
        """
        started = descendants(self._process.get_pid())
        self._stdin.close()
        draining = asyncio.create_task(self._drain(), name="toolplug-mcp-drain")
        try:
            await self._exit_within(POLITE_S)
            if self._alive():
                self._signal(signal.SIGTERM)
                await self._group_gone_within(TERMINATE_S)
            if self._alive():
                self._signal(_KILL)
                await self._exit_within(KILL_S)
        finally:
            kill(started)
            if not self._pipes.stdin_lost:
                self._stdin.transport.abort()
            self._process.close()
            for task in (draining, self._listening):
                task.cancel()
            await asyncio.wait({draining, self._listening})

    async def _drain(self) -> None:
        """Discard the output, as a child that blocks on writing does not notice the end of its input."""
        with suppress(ConnectionError):
            while await self._stdout.read(64 * 1024):
                pass

    async def _exit_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pipes.exited.wait()

    async def _group_gone_within(self, seconds: float) -> None:
        """Poll until the process group is empty or the time is over; no system call waits for a group."""
        for _ in range(round(seconds / _POLL_S)):
            if not self._alive():
                return
            await asyncio.sleep(_POLL_S)

    def _alive(self) -> bool:
        return self._signal(0)

    def _signal(self, number: int) -> bool:
        """Send a signal to the process group; return False if the group is empty.

        Windows has no groups of this kind: there it is the process itself, which every signal ends at once.
        """
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.get_pid(), number)
                return True
            if self._process.get_returncode() is None:
                if number:
                    self._process.kill()
                return True
        return False


async def _spawn(
    loop: asyncio.AbstractEventLoop, pipes: _Pipes, command: Command, environment: Mapping[str, str], folder: Path
) -> asyncio.SubprocessTransport:
    try:
        process, _ = await loop.subprocess_exec(
            lambda: pipes,
            find_program(command.command, environment.get("PATH"), folder),
            *command.args,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ConnectionFailed(_why_not(command, folder, error)) from None
    return process


def find_program(name: str, path: str | None, folder: Path) -> str:
    """Return what to start for a command: on Windows with its ending, as `npx` is `npx.cmd` and is not found without.

    `path`: the folders to look in, as in the variable PATH. A command in a folder is found from `folder` on.
    """
    if not _ENDINGS_MATTER:
        return name
    at = str(folder / name) if os.path.dirname(name) else name
    return which(at, path=path) or name


def _why_not(command: Command, folder: Path, error: Exception) -> str:
    name = command.command
    if not folder.is_dir():
        return f"cannot start {name!r}: the working directory {str(folder)!r} does not exist"
    if isinstance(error, FileNotFoundError):
        hint = "; its arguments belong under args" if is_command_line(name) else ""
        return f"cannot start {name!r}: no such command{hint}"
    if isinstance(error, PermissionError):
        return f"cannot start {name!r}: it is not executable"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"cannot start {name!r}: {reason}"


def _name_command(command: Command, secrets: Sequence[str]) -> str:
    """Return the words that tell apart several servers which run the same program, without secrets."""
    line = mask_secrets(" ".join((command.command, *command.args)), secrets)
    return line if len(line) <= _MAX_CALLED else f"{line[:_MAX_CALLED]}…"


def secrets_of(command: Command) -> tuple[str, ...]:
    """Return the secret values in the arguments and the environment: by their names, or too long for an option."""
    env = [(key, value) for key, value in command.env.items() if value]
    whole = (value for key, value in env if looks_secret((key,)) or len(value) >= _LONG_VALUE)
    parts = (form for key, value in env for part in find_secrets(value, key) for form in forms_of(part.text, value))
    return (*whole, *parts, *secrets_in(command.args))


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
