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
from itertools import cycle
from selectors import EVENT_READ, DefaultSelector
from statistics import median

from playwright.async_api import async_playwright

from benchmarks.applications.toolplug_host import KEY
from benchmarks.calling import ALICE, repeated, trivial
from benchmarks.connection import Connection, request
from benchmarks.frame import COUNT, MILLISECONDS, Batch, Row
from benchmarks.process import everywhere, started
from benchmarks.providers import Trivial
from benchmarks.server import CONNECTIONS
from benchmarks.tools import TEXT
from toolplug import FunctionRegistry, ToolCall
from toolplug_console.feed import FLUSH_S, FLUSH_S_EACH, Viewer
from toolplug_console.provider import Console
from toolplug_console.settings import Settings

ECHO = ToolCall(id="c1", name="echo", arguments={"text": TEXT})
LOOKERS = 50
TURNS = 64
"""Turns of each host in one sample. A turn is a call on each connection, 14 ms: what visitors are sent is in few."""
TOLD_S = 0.2
"""How long it may take to tell all visitors."""
SAMPLES = 5
"""Samples of the same two processes; then others, as each process has its own layout in memory."""
CHROMIUM = "/usr/bin/chromium"
_PAINTED = """() => new Promise((painted) => new PerformanceObserver((list) => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) painted(entry.startTime);
}).observe({type: "paint", buffered: true}))"""
_CALL = request(
    "POST",
    "/v1/tool-calls",
    {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    b'{"id":"c1","name":"hello","arguments":{"name":"World"}}',
)
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
    """Follow the calls on so many connections, and read whatever comes in a thread; raises if one has ended."""
    ended = threading.Event()
    left: list[object] = []
    with ExitStack() as life, DefaultSelector() as selector:
        for _ in range(count):
            stream = life.enter_context(socket.create_connection(("127.0.0.1", port)))
            stream.sendall(_STREAM)
            assert stream.recv(65536).startswith(b"HTTP/1.1 200")
            selector.register(stream, EVENT_READ)

        def read() -> None:
            while not ended.is_set():
                for key, _ in selector.select(0.1):
                    if not key.fileobj.recv(1 << 20):  # type: ignore[union-attr]
                        left.append(selector.unregister(key.fileobj))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield
        finally:
            ended.set()
            reader.join()
    if left:
        raise RuntimeError(f"{len(left)} visitors followed no longer: the row took too long")


class _Called:
    """A host in a process of its own, and the connections that call its tool."""

    def __init__(self, life: ExitStack, application: str, visitors: int = 0) -> None:
        self._served = life.enter_context(started("benchmarks.server", application))
        if visitors:
            life.enter_context(lookers(self._served.port, visitors))
        self._connections = [life.enter_context(Connection(self._served.port)) for _ in range(CONNECTIONS)]
        self.take_turn()

    def take_turn(self) -> float:
        """Call the tool on each connection; return the CPU time that the host has taken."""
        before = self._served.cpu_s()
        for connection in self._connections:
            connection.send(_CALL)
        for connection in self._connections:
            connection.answer()
        return self._served.cpu_s() - before

    async def rest(self, seconds: float) -> float:
        """Call nothing for so long; return the CPU time that the host has taken."""
        before = self._served.cpu_s()
        await asyncio.sleep(seconds)
        return self._served.cpu_s() - before


@asynccontextmanager
async def followed(visitors: int) -> AsyncGenerator[Batch]:
    """Call a tool of two hosts in turn, of which so many visitors follow one; yields the ratio of their CPU times.

    The turns are so short that both hosts meet the same machine. Their median has nothing of what visitors are sent,
    which comes by the clock: its time is taken while nothing is called, and is missing for calls in each such period.
    """
    period_s = FLUSH_S + FLUSH_S_EACH * visitors
    places = cycle(range(SAMPLES))
    with ExitStack() as life:
        hosts: list[_Called] = []

        async def batch(n: int) -> float:
            if next(places) == 0:
                life.close()
                hosts[:] = _Called(life, "console_host", visitors), _Called(life, "toolplug_host")
            ours, other = hosts
            ratios: list[float] = []
            for turn in range(TURNS):
                others_s = other.take_turn() if turn % 2 else 0.0
                ours_s = ours.take_turn()
                ratios.append(ours_s / (others_s or other.take_turn()))
            await ours.rest(period_s + TOLD_S)
            for _ in range(2):  # more calls than a batch shows
                ours.take_turn()
            sent_s = await ours.rest(period_s + TOLD_S)
            return n * median(ratios) / (1 - sent_s / period_s)

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
        ours=partial(followed, LOOKERS),
        against="no console",
        hold=1.05,
        aim=1.02,
        unit=COUNT,
        pairs=3 * SAMPLES,
        batch_s=0,
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
