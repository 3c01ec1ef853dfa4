"""The process of a provider as the host sees it: its start, what it says of its provider, its output, and its end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, cast

from pydantic import ValidationError

from toolplug.apart.confinement.bounds import ProcessWatch, process_limits
from toolplug.apart.confinement.cgroups import group_of_memory
from toolplug.apart.confinement.confinement import NOTHING, UNCONFINED, Confinement, Opening, Sandbox, granted_variables
from toolplug.apart.frames import ANSWER, ASK, BEGUN, PROTOCOL, Frame, FrameReader, FrameRefused, Peer, encode_frame
from toolplug.apart.limits import DESCRIBE_S, FRAME_SLACK, LINES_PER_S, MAX_LINE, MAX_OUTPUT
from toolplug.apart.values import DescribedProvider, decode_error
from toolplug.catalog.text import clean_text
from toolplug.crashes import mask_nothing
from toolplug.errors import ProviderError
from toolplug.providers.entry import ProviderState
from toolplug.runtime.threads import in_own_thread

SOURCE = Path(__file__).parents[2]
"""The folder of this package, which a process imports."""
_RUN = (
    "import gc, sys; gc.disable(); sys.path.append(sys.argv[3]); from toolplug.apart.worker import main; "
    "gc.freeze(); gc.enable(); main(*map(int, sys.argv[1:3]))"
)
"""What the process runs: the folder of this package may be on the host's path by a variable that it does not get.

The collector is off while it imports, as all of that stays: it would take a twelfth of the start.
"""
_RUN_THERE = "import sys; from toolplug.apart.worker import main; main(*map(int, sys.argv[1:3]))"
"""What an interpreter of another environment runs, with the toolplug that is installed there."""
_LIMIT = """
import os, resource, sys
for word in sys.argv[1].split():
    name, _, low = word.partition("=")
    most = resource.getrlimit(getattr(resource, name))[1]
    low = int(low) if most == resource.RLIM_INFINITY else min(int(low), most)
    resource.setrlimit(getattr(resource, name), (low, low))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""What it runs before: its packages may have `.pth` files, which run before any line of toolplug there."""
_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT", "USERPROFILE", "TEMP")
"""What a process gets of the host's environment: what the interpreter and the system need, and no secret."""
_ADD_SEALS, _SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1033, 1, 2, 4
"""Of fcntl.h; the standard library names them since Python 3.13."""
_ALL_BEGUN = 2**64 - 1
"""The last begun call of a process that has spoilt the number: all may have had their effect."""
_STOP_S = 2.0
_READ = 64 * 1024
_DESCRIPTION_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTarget:
    """What a process runs: a provider's type with its settings, as the first message has it.

    `code` is the content of a provider that is a file. `python` is the interpreter of its own environment, empty for
    that of the host. `variables` are those of the process, None for few of the host's. `masked` removes the secrets of
    the settings from a text.
    """

    key: str
    owner: str
    hello: Mapping[str, object]
    code: bytes = b""
    python: str = ""
    max_result_bytes: int = 1024 * 1024
    variables: Mapping[str, str] | None = field(default=None, repr=False)
    confinement: Confinement = UNCONFINED
    masked: Callable[[str], str] = field(default=mask_nothing, compare=False)

    @property
    def max_frame(self) -> int:
        """The longest message of the process."""
        return self.max_result_bytes + FRAME_SLACK

    def problem(self, what: str) -> ProviderError:
        """Return the error of a process that does not start."""
        fix = "its output is in the log of the host, before this line"
        return ProviderError(f"{self.owner}: its process {what}", state=ProviderState.START_FAILED, fix=fix)


def check_protocol(target: ProcessTarget, spoken: object) -> None:
    """Raise `ProviderError` unless a process speaks the protocol of this host, or the one before."""
    if spoken in (PROTOCOL, PROTOCOL - 1):
        return
    newer = isinstance(spoken, int) and spoken > PROTOCOL
    text = f"{target.owner}: its process speaks protocol {spoken!r}, and this host {PROTOCOL} and {PROTOCOL - 1}"
    fix = "update toolplug of the host" if newer else f"update toolplug in its environment: toolplug env {target.key}"
    raise ProviderError(text, state=ProviderState.INCOMPATIBLE, fix=fix)


_NOTHING_SAID = DescribedProvider(
    problems=(), secrets=frozenset(), tools=(), routes=(), scopes=frozenset(), unchecked=()
)


class WorkerProcess:
    """A process that has described its provider, and waits for its start. One that nobody starts ends by itself."""

    def __init__(self, target: ProcessTarget, opening: Opening = NOTHING) -> None:
        self.target: ProcessTarget = target
        self._opening = opening
        self._watch: ProcessWatch | None = None
        self._output: tuple[asyncio.BaseTransport, OutputLog] | None = None
        self.description: DescribedProvider = _NOTHING_SAID
        self.output: bytes = b""
        ours, theirs = socket.socketpair()
        # Memory of both: a message for each beginning would double what a call costs.
        self._page = _open_page()
        with theirs:
            descriptors = (theirs.fileno(), self._page)
            self._process = self._start(descriptors)
        self._socket = ours
        # Whoever reads a configuration only to check it drops this object, and the process must not stay.
        self._finish = weakref.finalize(self, _end_process, self._process, ours, self._page)

    def _start(self, descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
        confinement = self.target.confinement
        program = [*_interpreter(self.target.python, confinement), *map(str, descriptors), str(SOURCE)]
        group = group_of_memory(confinement.bounds.memory)
        entering = () if group is None else group.command_prefix
        if confinement.sandbox is None:
            variables = _few_variables() if self.target.variables is None else self.target.variables
            environment = {**variables, **granted_variables(confinement.run)}
            start, inner = partial(_start_process, [*entering, *program], descriptors, environment), None
        else:
            sandbox = confinement.sandbox.open_with(self._opening)
            confined = _ConfinedStart(sandbox, program, descriptors, entering)
            start, inner = confined.start, confined.read_inner
        if not confinement.watched:
            return start()
        opening = self._opening
        self._watch = ProcessWatch(confinement.bounds, opening.counted, opening.before, _kill_group, group)
        return self._watch.start(start, inner)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def last_begun(self) -> int:
        """The number of the last call that the process has begun; it begins them in the order of their numbers."""
        # Not mapped here: a process that makes the file shorter would end the host, which then has no such memory.
        number = os.pread(self._page, BEGUN.size, 0) if self._finish.alive else b""
        return BEGUN.unpack(number)[0] if len(number) == BEGUN.size else _ALL_BEGUN

    @property
    def ended_for(self) -> str:
        """Which bound it exceeded, so that the host has ended it; empty for none."""
        return f"was ended: {self._watch.excess}" if self._watch is not None and self._watch.excess else ""

    @property
    def exit_reason(self) -> str:
        """How the process ended, in words."""
        if self.ended_for:
            return self.ended_for
        code = self._process.poll()
        if code is None:
            return "it does not answer"
        return f"ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def describe(self) -> None:
        """Send the first message, and read what the process says of its provider. Blocks, at most 60 s.

        Raises `ProviderError`.
        """
        target, until = self.target, monotonic() + DESCRIBE_S
        self._socket.settimeout(DESCRIBE_S)
        level = logging.getLogger(f"toolplug.providers.{target.key}").getEffectiveLevel()
        confinement = target.confinement
        hello = {
            **target.hello,
            "protocol": PROTOCOL,
            "max_result_bytes": target.max_result_bytes,
            "level": level,
            "bounds": confinement.bounds._asdict(),
            "confined": confinement.sandbox is not None,
            "files": [[each.grant.path, *each.identity] for each in self._opening.files],
            "proxy": self._opening.proxy is not None,
        }
        try:
            self._socket.sendall(encode_frame(ASK, hello, target.code))
            frame = self._first_frame(until)
        except (OSError, FrameRefused) as error:
            self.kill()
            reason = str(error) if isinstance(error, FrameRefused) else self.exit_reason
            raise target.problem(f"said nothing of its provider: {reason}{self._last_line()}") from None
        if frame is None:
            self.kill()
            raise target.problem(f"has not described its provider after {DESCRIBE_S:g} s")
        if frame.kind != ANSWER:
            self.kill()
            raise target.problem("sent something else than the description of its provider")
        if "error" in frame.head:
            self.kill()
            error = decode_error(frame.head["error"])
            raise error if isinstance(error, ProviderError) else target.problem(f"has not described it: {error}")
        try:
            check_protocol(target, frame.head.get("protocol", 0))
            self.description = DescribedProvider.model_validate(frame.head)
        except ValidationError as error:
            self.kill()
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise target.problem(f"sent no description of its provider: {place}: {first['msg']}") from None

    def _first_frame(self, until: float) -> Frame | None:
        """Return the first message, None if it is late; what the process prints meanwhile is kept."""
        reader = FrameReader(_DESCRIPTION_BYTES)
        pipe = cast("Any", self._process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(pipe, selectors.EVENT_READ)
            while (left := until - monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fileobj is pipe:
                        text = os.read(pipe.fileno(), _READ)
                        self.output = (self.output + text)[-MAX_OUTPUT:]
                        if not text:
                            selector.unregister(pipe)
                        continue
                    data = self._socket.recv(_READ)
                    if not data:
                        self._process.wait(_STOP_S)
                        raise FrameRefused(self.exit_reason)
                    reader.add(data)
                    for frame in reader:
                        return frame
        return None

    def _last_line(self) -> str:
        lines = self.output.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"; it printed last: {self.target.masked(clean_text(last[:200]))}" if last else ""

    async def connect(self, peer: Peer, log: OutputLog) -> None:
        """Read what the process sends and prints on the running loop."""
        loop = asyncio.get_running_loop()
        pipe, self._process.stdout = cast("Any", self._process.stdout), None
        self._socket.setblocking(False)
        # A caller who is cancelled here leaves neither of the two open: what a transport has, it closes itself.
        try:
            transport, _ = await loop.create_connection(lambda: peer, sock=self._socket)
        except BaseException:
            pipe.close()
            raise
        log.data_received(self.output)
        try:
            reading, _ = await loop.connect_read_pipe(lambda: log, pipe)
        except BaseException:
            transport.close()
            raise
        self._output = (reading, log)
        # The socket may be held by processes that it has forked: they must not keep its end from being seen.
        with suppress(AttributeError, OSError):
            descriptor = os.pidfd_open(self.pid)
            loop.add_reader(descriptor, _on_exit, loop, descriptor, peer)

    def kill(self) -> None:
        """End the process and all of its group at once."""
        self._finish()

    async def end_output(self) -> None:
        """After its end, wait until nothing of it is left that could print; what is confined ends after bubblewrap."""
        if self._output is not None:
            pipe, log = self._output
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await log.ended.wait()
            pipe.close()

    async def wait(self, seconds: float) -> bool:
        """Wait until the process has ended by itself, at most so many seconds; return whether it has."""

        def wait() -> bool:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return self._process.poll() is not None

        return await in_own_thread(wait)


def _few_variables() -> Mapping[str, str]:
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def _open_page() -> int:
    """Return the descriptor of memory that a process and the host have together, sealed in its size where it can be."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            page = os.dup(file.fileno())
        os.ftruncate(page, BEGUN.size)
        return page
    page = os.memfd_create("toolplug-begun", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(page, BEGUN.size)
    import_module("fcntl").fcntl(page, _ADD_SEALS, _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW)
    return page


def _interpreter(python: str, confinement: Confinement) -> list[str]:
    """Return the command that runs a worker; one of another environment imports from that alone."""
    if not python:
        return [sys.executable, "-u", "-P", "-c", _RUN]
    limits = process_limits(confinement.bounds._asdict(), alone=confinement.sandbox is not None)
    words = " ".join(f"{name}={low}" for name, low in limits.items())
    limited = [python, "-I", "-S", "-c", _LIMIT, words] if confinement.watched else []
    return [*limited, python, "-u", "-s", "-P", "-c", _RUN_THERE]


def _on_exit(loop: asyncio.AbstractEventLoop, descriptor: int, peer: Peer) -> None:
    loop.remove_reader(descriptor)
    os.close(descriptor)
    # In a later turn: what it has sent before it ended is read first.
    loop.call_later(0.05, peer.fail, "ended")


def _end_process(process: subprocess.Popen[bytes], ours: socket.socket, page: int) -> None:
    os.close(page)
    # A socket that a transport has is the transport's to close.
    with suppress(OSError):
        if ours.gettimeout() != 0.0:
            ours.close()
    # Also where the process has ended by itself: what it has forked is still of its group.
    _kill_group(process)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    if process.stdout is not None:
        process.stdout.close()


def _start_process(
    words: list[str], descriptors: tuple[int, ...], environment: Mapping[str, str], folder: str | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=folder,
        # A group of its own: what the provider starts ends with it, and a Ctrl-C is the host's alone.
        start_new_session=True,
    )


class _ConfinedStart:
    """Starts a program in a sandbox, and reads the id of its first process."""

    def __init__(
        self, sandbox: Sandbox, program: list[str], descriptors: tuple[int, ...], entering: tuple[str, ...]
    ) -> None:
        self._sandbox = sandbox
        self._entering = entering
        self._program = program
        self._descriptors = descriptors
        self._told = -1

    def start(self) -> subprocess.Popen[bytes]:
        """Start it. bubblewrap has no variable, as the process can read those of its parent."""
        with self._sandbox.wrap(self._program) as command:
            self._told = command.told
            words = [*self._entering, *command.words]
            return _start_process(words, (*self._descriptors, *command.descriptors), {}, "/")

    def read_inner(self) -> int | None:
        """Wait for bubblewrap to say the id, None if it ends before."""
        with os.fdopen(self._told, "rb") as told:
            try:
                return int(json.loads(told.read())["child-pid"])
            except (ValueError, KeyError):
                return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def start_process(target: ProcessTarget, opening: Opening = NOTHING) -> WorkerProcess:
    """Start a process and let it describe its provider. Blocks. Raises `ProviderError`."""
    try:
        process = WorkerProcess(target, opening)
    except OSError as error:
        raise target.problem(f"cannot be started: {error.strerror}") from None
    process.describe()
    return process


async def start_process_async(target: ProcessTarget, opening: Opening = NOTHING) -> WorkerProcess:
    """Start a process without blocking the loop. Raises `ProviderError`."""
    return await in_own_thread(partial(start_process, target, opening))


class OutputLog(asyncio.Protocol):
    """What a process prints or logs, as lines of its provider's logger; beyond a number in each second as their count.

    The names of its loggers are not used: a stranger's process must not write lines of the audit log.
    """

    def __init__(self, target: ProcessTarget) -> None:
        self._log = logging.getLogger(f"toolplug.providers.{target.key}")
        self._masked = target.masked
        self.ended: asyncio.Event = asyncio.Event()
        self._rest = b""
        self._second = 0
        self._lines = 0
        self._omitted = 0

    def data_received(self, data: bytes) -> None:
        """Log each whole line."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_LINE]
        for line in lines:
            self.write(logging.INFO, line.decode("utf-8", "replace"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Log the line that was not ended."""
        self.ended.set()
        rest, self._rest = self._rest, b""
        if rest:
            self.write(logging.INFO, rest.decode("utf-8", "replace"))

    def write(self, level: int, line: str) -> None:
        """Log one line, or a text of several, unless there were too many in this second."""
        second = int(monotonic())
        if second != self._second:
            if self._omitted:
                self._log.warning("%d lines of its output were left out", self._omitted)
            self._second, self._lines, self._omitted = second, 0, 0
        self._lines += 1
        if self._lines > LINES_PER_S:
            self._omitted += 1
        elif line.strip():
            # No text of it begins a line of the log, or tells a terminal what to do.
            text = clean_text(line.rstrip()[:MAX_LINE]).replace("\n", "\n    ")
            self._log.log(level, "%s", self._masked(text))
