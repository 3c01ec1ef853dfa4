"""HTTP applications in a process of their own, and the CPU time that their requests cost.

`python -m benchmarks.server NAME` serves one application on a free port and writes the port as its only line.
Everything is served by uvicorn with uvloop and httptools, without access log; with a further argument, `edge`, behind
the limits of `toolplug serve`.
"""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from importlib import import_module

import uvloop
from uvicorn import Config, Server

from benchmarks.connection import Connection
from benchmarks.frame import Batch
from benchmarks.process import started
from toolplug.cli.serving.edge import Edge, EdgeConfig
from toolplug.host.file.settings import EdgeSettings, Http

CONNECTIONS = 64
UNLIMITED = Http(edge=EdgeSettings(idle_s=600.0))
"""The default limits of the edge, but for connections that wait for their turn in a benchmark."""


@asynccontextmanager
async def requested(application: str, message: bytes, *how: str) -> AsyncGenerator[Batch]:
    """Send the message to one application over kept connections; the cost is the CPU time of its server's process.

    Each connection has one request under way, so the server is never woken for a single one.
    """
    with started("benchmarks.server", application, *how) as served, ExitStack() as opened:
        connections = [opened.enter_context(Connection(served.port)) for _ in range(CONNECTIONS)]

        async def batch(n: int) -> float:
            before = served.cpu_s()
            for start in range(0, n, CONNECTIONS):
                used = connections[: n - start]
                for connection in used:
                    connection.send(message)
                for connection in used:
                    connection.answer()
            return served.cpu_s() - before

        yield batch


async def _serve(name: str, how: str = "") -> None:
    opened = import_module(f"benchmarks.applications.{name}").opened
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with opened() as app:
            if how == "edge":
                config: Config = EdgeConfig(app, Edge(lambda: UNLIMITED))
            else:
                config = Config(
                    app, loop="uvloop", http="httptools", access_log=False, log_level="warning", timeout_keep_alive=600
                )
            gc.collect()
            gc.freeze()
            print(listening.getsockname()[1], flush=True)
            await Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:]))
