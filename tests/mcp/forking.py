"""Servers made with the SDK that import it once: each is a fork of one process, which takes milliseconds, not seconds.

`forking()` starts that process; `forked(...)` of what it yields is the command of a server. The program behind the
command hands its standard streams to the process, which forks; it ends with the fork and its exit code, and the fork
with it. The signals of a server are passed on.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

STREAMS = (0, 1, 2)
MAX_BYTES = 1 << 16
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Forked = Callable[..., list[str]]


@contextmanager
def forking(*modules: str) -> Iterator[Forked]:
    """Yield `forked(script, *arguments)`: the words of a command that runs the script.

    The one process imports what every script of the SDK imports, and these modules.
    """
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        place = str(Path(folder) / "forks")
        listener.bind(place)
        listener.listen()
        command = [sys.executable, __file__, "--fork", str(listener.fileno()), *modules]
        with subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL) as process:
            try:
                yield lambda script, *arguments: [sys.executable, "-SE", __file__, place, str(script), *arguments]
            finally:
                process.kill()


def fork_for_each(listener: socket.socket, modules: Sequence[str]) -> None:
    """Run the script of each connection in a fork, with the streams and variables of the program that connects."""
    for module in ("mcp.client.client", "mcp.server.mcpserver", "uvicorn", *modules):
        import_module(module)
    running: dict[int, socket.socket] = {}

    def reap(*_: object) -> None:
        """Tell the exit code of each fork that has gone."""
        for pid in [*running]:
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                with running.pop(pid) as connection, suppress(OSError):
                    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))

    signal.signal(signal.SIGCHLD, reap)
    while True:
        connection, _ = listener.accept()
        message, streams, _, _ = socket.recv_fds(connection, MAX_BYTES, len(STREAMS))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for other in (listener, *running.values()):
                other.close()
            for stream, number in zip(streams, STREAMS, strict=True):
                os.dup2(stream, number)
                os.close(stream)
            threading.Thread(target=end_with, args=(connection,), daemon=True).start()
            run(**json.loads(message))
        running[pid] = connection
        with suppress(OSError):
            connection.sendall(b"%d\n" % pid)
        for stream in streams:
            os.close(stream)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def end_with(connection: socket.socket) -> None:
    """End this fork when the program that connected has ended."""
    connection.recv(1)
    os._exit(1)


def run(arguments: list[str], environ: dict[str, str], folder: str) -> None:
    """Become the script, to its end."""
    code = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).parent)
        try:
            runpy.run_path(arguments[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def hand_over(place: str, arguments: list[str]) -> int:
    """Let the process run the script with the streams of this one, and return its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        message = {"arguments": arguments, "environ": dict(os.environ), "folder": os.getcwd()}
        socket.send_fds(connection, [json.dumps(message).encode()], STREAMS)
        for number in STREAMS:
            os.close(number)
        told = connection.makefile("rb")
        pid = int(told.readline() or 0)

        def pass_on(number: int, _: object) -> None:
            os.kill(pid, number)

        for each in PASSED_ON if pid else ():
            signal.signal(each, pass_on)
        return int(told.readline() or 1)


if __name__ == "__main__":
    if sys.argv[1] == "--fork":
        fork_for_each(socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
    else:
        sys.exit(hand_over(sys.argv[1], sys.argv[2:]))
