"""An HTTP server in a process of its own, and the CPU time that its requests cost.

`python -m benchmarks.server NAME` serves one application on a free port and writes the port as its only line.
Everything is served by uvicorn with uvloop and httptools, without access log.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from importlib import import_module
from subprocess import PIPE, Popen
from types import MappingProxyType

import uvloop
from uvicorn import Config, Server

from benchmarks.frame import Batch

CONNECTIONS = 64


def request(method: str, path: str, headers: Mapping[str, str] = MappingProxyType({}), body: bytes = b"") -> bytes:
    """The bytes of one HTTP/1.1 request on a connection that stays open."""
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*head, "", ""]).encode() + body


@asynccontextmanager
async def requested(application: str, message: bytes) -> AsyncGenerator[Batch]:
    """Send the message to one application over kept connections; the cost is the CPU time of its server's process.

    Each connection has one request under way, so the server is never woken for a single one.
    """
    with _started(application) as (pid, port), ExitStack() as opened:
        connections = [
            opened.enter_context(closing(socket.create_connection(("127.0.0.1", port)))) for _ in range(CONNECTIONS)
        ]
        cpu_clock = (~pid << 3) | 2  # clock_getcpuclockid(3): the clock of all threads of a process

        async def batch(n: int) -> float:
            before = time.clock_gettime(cpu_clock)
            for start in range(0, n, CONNECTIONS):
                used = connections[: n - start]
                for connection in used:
                    connection.sendall(message)
                for connection in used:
                    _answered(connection)
            return time.clock_gettime(cpu_clock) - before

        yield batch


@contextmanager
def _started(application: str) -> Generator[tuple[int, int]]:
    """Process id and port of a server that answers, until it is no longer needed."""
    command = [sys.executable, "-m", "benchmarks.server", application]
    with Popen(command, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


def _answered(connection: socket.socket) -> None:
    """Read one whole answer, which has a Content-Length; anything but success ends the run."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += _received(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(answer.decode())
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += _received(connection)


def _received(connection: socket.socket) -> bytes:
    received = connection.recv(65536)
    if not received:
        raise RuntimeError("the server closed the connection")
    return received


async def _serve(name: str) -> None:
    opened = import_module(f"benchmarks.applications.{name}").opened
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with opened() as app:
            config = Config(
                app, loop="uvloop", http="httptools", access_log=False, log_level="warning", timeout_keep_alive=600
            )
            print(listening.getsockname()[1], flush=True)
            await Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
