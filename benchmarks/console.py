"""The console's feed of calls: what it costs a call while nobody looks, while one visitor does, and with fifty."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from selectors import EVENT_READ, DefaultSelector

from benchmarks.applications.toolplug_host import KEY
from benchmarks.calling import ALICE, repeated, trivial
from benchmarks.connection import Connection, request
from benchmarks.frame import Batch, Row
from benchmarks.http import tool_call
from benchmarks.process import started
from benchmarks.providers import Trivial
from benchmarks.server import CONNECTIONS
from benchmarks.tools import TEXT
from toolplug import FunctionRegistry, ToolCall
from toolplug_console.feed import Viewer
from toolplug_console.provider import Console

ECHO = ToolCall(id="c1", name="echo", arguments={"text": TEXT})
LOOKERS = 50
_STREAM = request("GET", "/console/calls", {"Authorization": f"Bearer {KEY}"})


async def _read(viewer: Viewer) -> None:
    while True:
        await viewer.batches(60)


@asynccontextmanager
async def with_console(*, looking: bool) -> AsyncGenerator[Batch]:
    """Call the trivial tool next to a console, while a visitor of the caller's tenant follows the calls or not."""
    console = Console()
    async with FunctionRegistry({"trivial": Trivial(), "console": console}) as registry:
        with ExitStack() as life:
            if looking:
                viewer = life.enter_context(console.feed.viewer(ALICE))
                life.callback(asyncio.create_task(_read(viewer)).cancel)
            yield await repeated(registry, ECHO)


@contextmanager
def lookers(port: int, count: int) -> Generator[None]:
    """Follow the calls on so many connections, and read whatever comes in a thread."""
    ended = threading.Event()
    with ExitStack() as life, DefaultSelector() as selector:
        for _ in range(count):
            stream = life.enter_context(socket.create_connection(("127.0.0.1", port)))
            stream.sendall(_STREAM)
            assert stream.recv(65536).startswith(b"HTTP/1.1 200")
            selector.register(stream, EVENT_READ)

        def read() -> None:
            while not ended.is_set():
                for key, _ in selector.select(0.1):
                    key.fileobj.recv(1 << 20)  # type: ignore[union-attr]

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield
        finally:
            ended.set()
            reader.join()


@asynccontextmanager
async def looked_at(count: int) -> AsyncGenerator[Batch]:
    """Call a tool over HTTP while so many visitors follow the calls; the cost is the CPU time of the server."""
    body = b'{"id":"c1","name":"hello","arguments":{"name":"World"}}'
    message = request(
        "POST", "/v1/tool-calls", {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}, body
    )
    with started("benchmarks.server", "console_host") as served, ExitStack() as opened:
        opened.enter_context(lookers(served.port, count))
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


ROWS = (
    Row(
        name="a call while nobody looks at the console",
        ours=partial(with_console, looking=False),
        other=trivial,
        against="no console",
        hold=1.05,
        aim=1.0,
    ),
    Row(
        name="a call while a visitor follows the calls",
        ours=partial(with_console, looking=True),
        other=trivial,
        against="no console",
        hold=3,
        aim=2,
    ),
    Row(
        name=f"POST /v1/tool-calls while {LOOKERS} visitors follow the calls",
        ours=partial(looked_at, LOOKERS),
        other=tool_call,
        against="no console",
        hold=1.05,
        aim=1.02,
        pairs=41,
        batch_s=0.5,
    ),
)
