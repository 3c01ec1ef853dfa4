"""The console: what its feed costs a call while nobody looks, one visitor does, and fifty do; when its page is painted.

The last row opens Chromium (`/usr/bin/chromium`), each time with empty caches.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from selectors import EVENT_READ, DefaultSelector

from playwright.async_api import async_playwright

from benchmarks.applications.toolplug_host import KEY
from benchmarks.calling import ALICE, repeated, trivial
from benchmarks.connection import Connection, request
from benchmarks.frame import MILLISECONDS, Batch, Row
from benchmarks.http import tool_call
from benchmarks.process import everywhere, started
from benchmarks.providers import Trivial
from benchmarks.server import CONNECTIONS
from benchmarks.tools import TEXT
from toolplug import FunctionRegistry, ToolCall
from toolplug_console.feed import Viewer
from toolplug_console.provider import Console
from toolplug_console.settings import Settings

ECHO = ToolCall(id="c1", name="echo", arguments={"text": TEXT})
LOOKERS = 50
CHROMIUM = "/usr/bin/chromium"
_PAINTED = """() => new Promise((painted) => new PerformanceObserver((list) => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) painted(entry.startTime);
}).observe({type: "paint", buffered: true}))"""
_STREAM = request("GET", "/console/calls", {"Authorization": f"Bearer {KEY}"})


async def _read(viewer: Viewer) -> None:
    while True:
        await viewer.batches(60)


@asynccontextmanager
async def with_console(*, looking: bool, remember: bool = True) -> AsyncGenerator[Batch]:
    """Call the trivial tool next to a console, while a visitor of the caller's tenant follows the calls or not."""
    console = Console(Settings(remember=remember))
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


@asynccontextmanager
async def painted(application: str) -> AsyncGenerator[Batch]:
    """Open `/console` of an application; the cost is the time until the first content is on the screen."""
    with started("benchmarks.server", application) as served, everywhere():
        async with (
            async_playwright() as playwright,
            await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
        ):

            async def batch(n: int) -> float:
                spent_ms = 0.0
                for _ in range(n):
                    async with await browser.new_context() as visitor:
                        page = await visitor.new_page()
                        await page.goto(f"http://127.0.0.1:{served.port}/console")
                        spent_ms += await page.evaluate(_PAINTED)
                return spent_ms / 1000

            yield batch


ROWS = (
    Row(
        name="a call while nobody looks at the console, and it remembers nothing",
        ours=partial(with_console, looking=False, remember=False),
        other=trivial,
        against="no console",
        hold=1.05,
        aim=1.0,
    ),
    Row(
        name="a call that the console remembers, while nobody looks",
        ours=partial(with_console, looking=False),
        other=trivial,
        against="no console",
        hold=3,
        aim=2,
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
    Row(
        name="first paint of the console",
        ours=partial(painted, "console_host"),
        other=partial(painted, "empty_page"),
        against="that of an empty page",
        hold=2,
        aim=1.5,
        unit=MILLISECONDS,
        pairs=21,
        batch_s=0,
    ),
)
