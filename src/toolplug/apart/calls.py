"""Single functions in a process of their own: what reads a stranger's document must not be able to stop the host.

A parser holds the interpreter's lock, can take any memory and time over a document, and nothing can end a thread. A
process is limited and killed, and has no variable of the host that holds a secret.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import Event, Lock, Thread, Timer
from typing import IO, Any, Literal, Self, cast

from toolplug.apart.function_worker import END, FIRST, HEAD, MAX_PIECE, PIECE, RAISED, READY, REQUEST
from toolplug.errors import InvalidDefinition, ToolplugError
from toolplug.runtime.threads import begun_in_own_thread

ApartFunction = Callable[[bytes], bytes | Iterable[bytes]]
"""A function at the top of a module. It is given bytes, and returns bytes, at once or piece by piece."""

MAX_ANSWER = 32 * 1024 * 1024
"""Bytes of the answer of `call`, unless its caller says otherwise: they are held in memory."""
START_S = 120.0
"""Seconds until the module of a function is imported, by the clock: a busy machine makes a minute of half a second."""
WALL = 10
"""So many times its seconds of CPU time a call may take by the clock, or it waits for something and is ended."""
_EXIT_S = 5.0
"""Seconds that a process may take from closing its output to its end."""
_SAID = 4_000
"""Bytes of what a process prints that are kept, the last ones."""
_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "SYSTEMROOT", "PYTHONDONTWRITEBYTECODE")
_CPU_IS_SPENT = -signal.SIGPROF if hasattr(signal, "SIGPROF") else None
_WORKER = Path(__file__).with_name("function_worker.py")

FailureReason = Literal["start", "time", "memory", "ended", "import", "raised", "answer", "stopped"]


class ApartCallFailed(ToolplugError):
    """A function in a process of its own has returned nothing.

    `reason` is `start` (the process does not start), `time`, `memory`, `ended` (the process ended, as by a crash in C),
    `import` (a package is missing), `raised` (any other exception), `answer` (the answer is too long or none), or
    `stopped`. `status` is that of a process that ended, negative for a signal; `said` what it raised or printed last.

    ```python
    import asyncio
    from zlib import decompress

    from toolplug.apart import ApartCallFailed, call

    async def main():
        try:
            await call(decompress, b"no archive", seconds=10, memory=512 * 1024 * 1024)
        except ApartCallFailed as error:
            assert (error.reason, error.said[:11]) == ("raised", "error: Erro")

    asyncio.run(main())
    ```
    """

    def __init__(self, reason: FailureReason, text: str, *, status: int | None = None, said: str = "") -> None:
        super().__init__(text)
        self.reason: FailureReason = reason
        self.status: int | None = status
        self.said: str = said


async def call(
    function: ApartFunction, data: bytes, seconds: float, memory: int, *, max_bytes: int = MAX_ANSWER
) -> bytes:
    """Call a function in a process that lives for this call, without holding the event loop, and return its answer.

    * `function` stands at the top of a module that the process imports; it is given `data`
    * `seconds` of CPU time, and ten times as long by the clock
    * `memory` in bytes: the address space of the process, with the interpreter's; no file that it writes is longer
    * `max_bytes` of the answer

    The process has few variables, and is ended if the caller is cancelled. It has the rights of the host's user.

    Raises `ApartCallFailed`, and `InvalidDefinition` for a function that cannot be imported.
    """
    process = FunctionProcess(function, seconds=seconds, memory=memory, max_bytes=max_bytes)

    def work() -> bytes:
        with process:
            answer = BytesIO()
            process.run(data, answer)
            return answer.getvalue()

    try:
        return await asyncio.wrap_future(begun_in_own_thread(work, name="toolplug-apart-call"))
    except asyncio.CancelledError:
        process.stop()
        raise


class FunctionProcess:
    """A process that calls one function again and again, for who has many small documents: a start costs half a second.

    It starts with the first call. Its methods block, and `run` is called by one thread at a time; the others wait.

    ```python
    from io import BytesIO
    from zlib import compress, decompress

    from toolplug.apart import FunctionProcess

    with FunctionProcess(decompress, seconds=10, memory=512 * 1024 * 1024) as process:
        for document in (b"milk", b"tea"):
            answer = BytesIO()
            process.run(compress(document), answer)
            assert answer.getvalue() == document
    ```
    """

    def __init__(self, function: ApartFunction, *, seconds: float, memory: int, max_bytes: int = MAX_ANSWER) -> None:
        self.seconds: float = seconds
        self._hello = json.dumps(
            {**_name_of(function), "path": python_path(), "seconds": seconds, "memory": memory}
        ).encode()
        self._max_bytes = max_bytes
        self._running = Lock()
        self._stopped = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: _LastWords | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The id of the process, None where there is none now."""
        return None if self._process is None else self._process.pid

    def run(self, data: bytes, answer: IO[bytes]) -> None:
        """Call the function, and write its answer as it comes. Raises `ApartCallFailed`; what is written stays."""
        with self._running:
            process, overdue = self._start(), Event()

            def end_late() -> None:
                overdue.set()  # first: its end is seen before this thread goes on
                _kill(process)

            late = Timer(WALL * self.seconds, end_late)
            late.start()
            try:
                self._call(process, data, answer)
            except _OutputClosed:
                raise self._failure(in_time=not overdue.is_set()) from None
            except BaseException:
                # Whatever has failed: what a library in C is like after that, nobody knows.
                self._end()
                raise
            finally:
                late.cancel()

    def rest(self) -> None:
        """End the process until the next call, once it has nothing to do."""
        with self._running:
            self._end()

    def stop(self) -> None:
        """End the process at once, in the middle of a call too; from then on `run` raises `ApartCallFailed`."""
        self._stopped.set()
        if process := self._process:
            _kill(process)

    def close(self) -> None:
        """End the process, and wait for that."""
        self.stop()
        self.rest()

    def _call(self, process: subprocess.Popen[bytes], data: bytes, answer: IO[bytes]) -> None:
        """Send one request and copy its answer. Raises `_OutputClosed` and `ApartCallFailed`."""
        source, sink = cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stdin)
        try:
            sink.write(REQUEST.pack(len(data)))
            sink.write(data)
            sink.flush()
        except OSError:
            raise _OutputClosed from None
        left = self._max_bytes
        while (message := _read(source))[0] == PIECE:
            left -= len(message[1])
            if left < 0:
                raise ApartCallFailed("answer", f"its answer has more than {self._max_bytes} bytes")
            answer.write(message[1])
        if message[0] == RAISED:
            self._raise(message[1])
        if message[0] != END:
            raise ApartCallFailed("answer", "its process sent no answer")

    def _raise(self, told: bytes) -> None:
        """Raise what the function has raised."""
        try:
            found = json.loads(told)
            kind, text = found["kind"], str(found["text"])
        except (ValueError, KeyError, TypeError):
            kind, text = "", ""
        match kind:
            case "memory":
                raise ApartCallFailed("memory", "it takes more memory than it may have", said=text)
            case "import":
                raise ApartCallFailed("import", f"a package is missing: {text}", said=text)
            case "raised":
                raise ApartCallFailed("raised", f"it raised {text}", said=text)
            case _:
                raise ApartCallFailed("answer", "its process sent no answer")

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        if self._stopped.is_set():
            raise ApartCallFailed("stopped", "it was stopped")
        try:
            self._process = process = subprocess.Popen(
                [sys.executable, "-I", str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
                # A group of its own: what the function starts ends with it.
                start_new_session=True,
            )
        except OSError as error:
            raise ApartCallFailed("start", f"its process cannot be started: {error}") from None
        self._output = _LastWords(cast("IO[bytes]", process.stderr))
        if self._stopped.is_set():  # meanwhile: `stop` did not see the process
            _kill(process)
        late = Timer(START_S, partial(_kill, process))
        late.start()
        ready = False
        try:
            sink = cast("IO[bytes]", process.stdin)
            sink.write(FIRST.pack(len(self._hello)) + self._hello)
            sink.flush()
            ready = _read(cast("IO[bytes]", process.stdout)) == (READY, b"")
        except (OSError, _OutputClosed, ApartCallFailed):
            pass
        finally:
            late.cancel()
        if not ready:
            raise self._failure(in_time=True, starts=True)
        return process

    def _failure(self, *, in_time: bool, starts: bool = False) -> ApartCallFailed:
        """End the process, and return why there is no answer."""
        status, said = self._end(wait_s=_EXIT_S)
        if self._stopped.is_set():
            return ApartCallFailed("stopped", "it was stopped")
        if starts:
            text = f"its process does not start ({_status(status)}): {said or 'no words'}"
            return ApartCallFailed("start", text, status=status, said=said)
        if not in_time or status == _CPU_IS_SPENT:
            return ApartCallFailed("time", f"it takes longer than {self.seconds:g} s", status=status, said=said)
        return ApartCallFailed("ended", f"its process ended ({_status(status)})", status=status, said=said)

    def _end(self, *, wait_s: float = 0.0) -> tuple[int, str]:
        """End the process, which may take so long for it itself. Return its status and its last line."""
        process, self._process = self._process, None
        output, self._output = self._output, None
        if process is None:
            return 0, ""
        if process.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
            # Its children too, and at once: the number of a group is free for others as soon as it is empty.
            _kill(process)
        status = process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                cast("IO[bytes]", pipe).close()
        return status, "" if output is None else output.last_line()


class _OutputClosed(Exception):
    """The process has closed its output."""


class _LastWords:
    """Reads what a process prints, so that it never waits, and keeps the end of it."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._text = b""
        self._thread = Thread(target=self._read, name="toolplug-apart-output", daemon=True)
        self._thread.start()

    def last_line(self) -> str:
        """Return the last line, after the end of the process."""
        self._thread.join(_EXIT_S)
        lines = self._text.decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _read(self) -> None:
        with self._pipe as pipe:
            while piece := cast("Any", pipe).read1():
                self._text = (self._text + piece)[-_SAID:]


def _read(source: IO[bytes]) -> tuple[bytes, bytes]:
    """Return the kind and bytes of the next message. Raises `_OutputClosed`, and `ApartCallFailed` for a wrong one."""
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        raise _OutputClosed
    kind, length = HEAD.unpack(head)
    if length > MAX_PIECE:
        raise ApartCallFailed("answer", "its process sent no answer")
    data = source.read(length)
    if len(data) < length:
        raise _OutputClosed
    return kind, data


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all of its group."""
    if hasattr(os, "killpg"):
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _name_of(function: object) -> dict[str, str]:
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "<lambda>")
    if not module or module == "__main__" or "<" in name:
        raise InvalidDefinition(
            f"{function!r} cannot run in a process of its own: give a function at the top of a module"
        )
    return {"module": module, "name": name}


def python_path() -> list[str]:
    """Return the folders from which a process imports: those of this one, as it runs the same interpreter."""
    return [os.path.abspath(each) if each else os.getcwd() for each in sys.path]


def _status(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
