"""The first Python process of a container: runs code, and reads and writes files, as the host asks over a socket.

It imports no more than it needs: that is half of the time of a first call. Nothing that it answers is trusted, since
the code shares its process (`channel.py`): it serves honest code, and the rules of the host hold the rest.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import stat
import sys
from _ast import Expr, Expression, Module, PyCF_ONLY_AST
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

FOLDER = "/mnt/data"
MAX_FILES = 1000
MAX_DEPTH = 8
CELL = "<code "
NICENESS = 10
"""The host comes first: it has to look at the memory of containers in time, however many of them compute."""
UID_WITH_INIT = 1000
"""The user of a container in a user namespace: there bubblewrap's own process counts as one of its processes."""


class WorkerChannel:
    """The socket to the host. A message is two lengths of four bytes, a JSON object and a payload."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        self._socket.set_inheritable(False)

    def ready(self) -> None:
        """Say that questions may come."""
        self._socket.sendall(b"toolplug")

    def take(self) -> tuple[dict[str, object], bytes]:
        """Wait for the next question."""
        lengths = self._exactly(8)
        head = self._exactly(int.from_bytes(lengths[:4], "big"))
        return json.loads(head), self._exactly(int.from_bytes(lengths[4:], "big"))

    def answer(self, payload: bytes = b"", **head: object) -> None:
        """Answer the question."""
        raw = json.dumps(head).encode()
        self._socket.sendall(len(raw).to_bytes(4, "big") + len(payload).to_bytes(4, "big") + raw + payload)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                os._exit(0)  # the host has gone
            parts += part
        return bytes(parts)


class Cells:
    """Runs code, each piece with the names that the earlier ones have left."""

    def __init__(self, max_output: int) -> None:
        self._max_output = max_output
        self._count = 0
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        self._names = main.__dict__

    def run(self, code: str) -> tuple[bool, bytes]:
        """Return whether it ended without an exception, and its last value, or its exception, as text."""
        self._count += 1
        name = f"{CELL}{self._count}>"
        process, ok = os.getpid(), False
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                text = self._value(code, name)
                ok = True
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException as error:  # noqa: BLE001  whatever the code raises is its result
            text = _describe(error, code, name)
        if os.getpid() != process:
            os._exit(0 if ok else 1)  # a process that the code forked, and that has come to its end
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the code may have closed or replaced it
                stream.flush()
        return ok, text.encode("utf-8", "backslashreplace")[: self._max_output]

    def _value(self, code: str, name: str) -> str:
        tree = compile(code, name, "exec", PyCF_ONLY_AST)
        assert isinstance(tree, Module)
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, Expr):
            exec(compile(tree, name, "exec"), self._names)
            return ""
        exec(compile(Module(tree.body[:-1], []), name, "exec"), self._names)
        value = eval(compile(Expression(last.value), name, "eval"), self._names)
        if value is None:
            return ""
        self._names["_"] = value
        return repr(value)


def _describe(error: BaseException, code: str, name: str) -> str:
    """Return an exception and those behind it, with the frames of the code alone."""
    try:
        linecache, traceback = map(import_module, ("linecache", "traceback"))  # 10 ms that most calls do without
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        described = traceback.TracebackException.from_exception(error, compact=True)
        todo = [described]
        while todo:
            each = todo.pop()
            if each is not None:
                each.stack[:] = [frame for frame in each.stack if frame.filename.startswith(CELL)]
                todo += [each.__cause__, each.__context__, *(each.exceptions or ())]
        return "".join(described.format())
    except BaseException as worse:  # noqa: BLE001  the code of the exception may raise, too
        return f"{type(error).__name__}, which cannot be described: {type(worse).__name__}"


def list_files() -> list[tuple[str, int, int]]:
    """Return path, size and time of change of the regular files in the working folder."""
    found: list[tuple[str, int, int]] = []
    folders = [""]
    for folder in folders:  # which grows
        if len(found) >= MAX_FILES:
            break
        with suppress(OSError), os.scandir(os.path.join(FOLDER, folder)) as scanned:
            for entry in sorted(scanned, key=lambda entry: entry.name):
                path = f"{folder}/{entry.name}" if folder else entry.name
                with suppress(OSError, UnicodeEncodeError):
                    path.encode()
                    state = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(state.st_mode) and path.count("/") < MAX_DEPTH:
                        folders.append(path)
                    elif stat.S_ISREG(state.st_mode):
                        found.append((path, state.st_size, state.st_mtime_ns))
    return found[:MAX_FILES]


def read(path: str, offset: int, count: int) -> bytes:
    """Return some bytes of a file; none at its end."""
    file = os.open(os.path.join(FOLDER, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        return os.pread(file, count, offset)
    finally:
        os.close(file)


def write(path: str, offset: int, data: bytes) -> None:
    """Write some bytes of a file; the first create it."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | (0 if offset else os.O_CREAT | os.O_TRUNC)
    file = os.open(os.path.join(FOLDER, path), flags, 0o644)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(file, memoryview(data)[done:], offset + done)
    finally:
        os.close(file)


def limit(memory: int, processes: int, disk: int) -> None:
    """Lower the limits of this process, which all that it starts inherits and cannot raise."""
    for which, most in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_NPROC, processes + (os.getuid() == UID_WITH_INIT)),
        (resource.RLIMIT_FSIZE, disk),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 256),
    ):
        before = resource.getrlimit(which)[1]
        value = most if before == resource.RLIM_INFINITY else min(most, before)
        resource.setrlimit(which, (value, value))


def serve(host: WorkerChannel, cells: Cells) -> None:
    """Answer questions, one after the other, until the host has gone."""
    while True:
        asked, payload = host.take()
        what, path = asked["op"], str(asked.get("path"))
        try:
            if what == "run":
                ok, text = cells.run(payload.decode())
                host.answer(text, ok=ok)
            elif what == "list":
                host.answer(ok=True, files=list_files())
            elif what == "read":
                host.answer(read(path, int(str(asked["offset"])), int(str(asked["count"]))), ok=True)
            elif what == "write":
                write(path, int(str(asked["offset"])), payload)
                host.answer(ok=True)
            else:
                os.unlink(os.path.join(FOLDER, path))
                host.answer(ok=True)
        except OSError as error:
            host.answer(str(error.strerror).encode(), ok=False, errno=error.errno)


def main(channel: str, memory: str, processes: str, disk: str, output: str, *packages: str) -> None:
    """Serve the host; the arguments are those of `bubblewrap.py`."""
    host = WorkerChannel(int(channel))
    limit(int(memory), int(processes), int(disk))
    os.nice(NICENESS)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path += packages
    sys.argv = [""]
    cells = Cells(int(output))
    host.ready()
    serve(host, cells)


if __name__ == "__main__":
    arguments: Sequence[str] = sys.argv[1:]
    main(*arguments)
