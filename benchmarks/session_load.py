"""What one plugin and one client wait for while the host is busy with others: 99th percentiles.

The others are 1,000 sessions of 20 tools with a reader each, of which 50 are updated every second, whether or not the
updates before have been answered. What they wait counts from when the update was due, so that a host that lags does
not slow down who asks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from statistics import quantiles

from benchmarks.caller import Caller
from benchmarks.connection import Connection
from benchmarks.frame import MILLISECONDS, Batch, Row
from benchmarks.plugin import CREATION, UPDATE, Plugin, definition, definitions
from benchmarks.process import Served
from benchmarks.readers import Readers
from benchmarks.serve import hosted

SESSIONS = 1000
TOOLS = 20
UPDATES_A_SECOND = 50
CALLERS = 32
MANY_TOOLS = 1000
SAMPLES = 200
PAUSE_S = 0.05
"""Between two requests of the plugin that is measured."""

SEEN_S = 20.0


class Crowd:
    """The sessions, their readers and their updates. `waits` are the seconds from each update until it was seen."""

    def __init__(self, served: Served, connection: Connection) -> None:
        self.waits: list[float] = []
        self.readers: Readers = Readers(self._see)
        self._port = served.port
        self._due: dict[int, float] = {}
        self._plugins = [Plugin.lending(connection, definitions(TOOLS)) for _ in range(SESSIONS)]
        for plugin in self._plugins:
            self.readers.open(served.port, plugin.reading())

    async def stir(self) -> None:
        """Update the sessions in turn, until cancelled."""
        loop = asyncio.get_running_loop()
        callers: asyncio.Queue[Caller] = asyncio.Queue()
        for _ in range(CALLERS):
            callers.put_nowait(await Caller.connected(self._port))
        begun = loop.time()
        async with asyncio.TaskGroup() as updates:
            for turn in count():
                due = begun + turn / UPDATES_A_SECOND
                await asyncio.sleep(due - loop.time())
                updates.create_task(self._update(callers, turn, due))

    async def _update(self, callers: asyncio.Queue[Caller], turn: int, due: float) -> None:
        number = turn % SESSIONS
        self._due[number] = due
        caller = await callers.get()
        await caller.ask(self._plugins[number].update(definition(turn % TOOLS, version=turn + 1)))
        callers.put_nowait(caller)

    def _see(self, number: int, event: bytes) -> None:
        if UPDATE in event:
            self.waits.append(asyncio.get_running_loop().time() - self._due.pop(number))


Waits = Callable[[Crowd, Caller], Awaitable[list[float]]]
"""Runs beside the crowd and returns how many seconds each of something took."""


async def registered(crowd: Crowd, caller: Caller) -> list[float]:
    """Register many tools in a new session, again and again."""
    loop, waits = asyncio.get_running_loop(), list[float]()
    tools = definitions(MANY_TOOLS)
    for _ in range(SAMPLES):
        plugin = Plugin.of(await caller.ask(CREATION))
        message = plugin.registration(tools)
        begun = loop.time()
        await caller.ask(message)
        waits.append(loop.time() - begun)
        await caller.ask(plugin.ending())
        await asyncio.sleep(PAUSE_S)
    return waits


async def updated(crowd: Crowd, caller: Caller) -> list[float]:
    """Update one of many tools, again and again."""
    loop, waits = asyncio.get_running_loop(), list[float]()
    plugin = Plugin.of(await caller.ask(CREATION))
    await caller.ask(plugin.registration(definitions(MANY_TOOLS)))
    for number in range(SAMPLES):
        message = plugin.update(definition(number, version=number + 1))
        begun = loop.time()
        await caller.ask(message)
        waits.append(loop.time() - begun)
        await asyncio.sleep(PAUSE_S)
    return waits


async def seen(crowd: Crowd, caller: Caller) -> list[float]:
    """Watch the readers of the crowd."""
    crowd.waits.clear()
    await asyncio.sleep(SEEN_S)
    return crowd.waits


@asynccontextmanager
async def beside_the_crowd(measured: Waits) -> AsyncGenerator[Batch]:
    """The 99th percentile of what is measured while the crowd is stirred."""
    loop = asyncio.get_running_loop()
    with hosted() as served, Connection(served.port) as connection:
        crowd = Crowd(served, connection)
        with crowd.readers:
            loop.add_reader(crowd.readers.fileno(), crowd.readers.drain)
            caller = await Caller.connected(served.port)
            async with asyncio.TaskGroup() as tasks:
                stirring = tasks.create_task(crowd.stir())

                async def batch(n: int) -> float:
                    return sum([quantiles(await measured(crowd, caller), n=100)[98] for _ in range(n)])

                yield batch
                stirring.cancel()
            loop.remove_reader(crowd.readers.fileno())


ROWS = tuple(
    Row(
        name=f"{what}, 1,000 sessions, 1,000 streams and 50 updates a second beside it: p99",
        ours=partial(beside_the_crowd, measured),
        hold=hold,
        aim=aim,
        unit=MILLISECONDS,
        pairs=3,
        batch_s=0,
    )
    for what, measured, hold, aim in (
        ("register 1,000 tools", registered, 250, 100),
        ("update one of 1,000 tools", updated, 250, 100),
        ("an update is seen by a client", seen, 500, 100),
    )
)
