"""One update of a session with 1,000 readers: the time until the last one has it, and the server's CPU time for it."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from statistics import quantiles
from time import perf_counter

from benchmarks.connection import Connection, request
from benchmarks.frame import MICROSECONDS, MILLISECONDS, Batch, Row
from benchmarks.plugin import JSON, UPDATE, Plugin, definition, definitions
from benchmarks.process import Served, started
from benchmarks.readers import END, Readers
from benchmarks.serve import hosted

READERS = 1000
TOOLS = 20
MANY_TOOLS = 1000
SAMPLES = 100

DATA = json.dumps(
    {
        "sessionCode": "ABCDEFGH",
        "updates": {"added": [], "removed": [], "modified": [definition(0)]},
        "revision": 1,
        "timestamp": "2026-11-01T00:00:00Z",
        "reason": "benchmark",
    }
)
"""What an update says, for the servers that do not know; as long as ours."""


class Audience:
    """The readers of one stream, and how many updates they have seen together."""

    def __init__(self, served: Served, message: bytes, *, ready: bytes = END) -> None:
        self.seen: int = 0
        self.readers: Readers = Readers(self._see)
        for _ in range(READERS):
            self.readers.open(served.port, message, ready=ready)

    def _see(self, number: int, event: bytes) -> None:
        if UPDATE in event:
            self.seen += 1

    def wait_for(self, seen: int) -> None:
        """Read on until they have seen so many."""
        self.readers.drain_until(lambda: self.seen >= seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A server with its audience. `begin` causes one update, `end` waits for the answer to that."""

    served: Served
    audience: Audience
    begin: Callable[[], object]
    end: Callable[[], object]


@contextmanager
def session(tools: int = TOOLS, *, whole: bool = False) -> Generator[Fixture]:
    """A session of ours: a plugin posts its change of one tool, or all of its tools, of which one has changed."""
    with ExitStack() as opened:
        served = opened.enter_context(hosted())
        with Connection(served.port) as lending:
            plugin = Plugin.lending(lending, definitions(tools))
        audience = Audience(served, plugin.reading())
        opened.enter_context(audience.readers)
        connection = opened.enter_context(Connection(served.port))
        sets = [[definition(0, version=version), *definitions(tools)[1:]] for version in (1, 2)]
        messages = cycle([plugin.registration(each) if whole else plugin.update(each[0]) for each in sets])
        yield Fixture(
            served=served,
            audience=audience,
            begin=lambda: connection.send(next(messages)),
            end=connection.answer,
        )


@contextmanager
def bare_transports() -> Generator[Fixture]:
    """The same bytes written to as many transports; there is no answer."""
    event = b"id: 1\n%bdata: %b\n\n" % (UPDATE, DATA.encode())
    with ExitStack() as opened:
        served = opened.enter_context(started("benchmarks.bare_stream"))
        trigger = opened.enter_context(closing(socket.create_connection(("127.0.0.1", served.port))))
        audience = Audience(served, request("GET", "/"))
        opened.enter_context(audience.readers)
        yield Fixture(served=served, audience=audience, begin=lambda: trigger.sendall(event), end=lambda: None)


@contextmanager
def sse_starlette() -> Generator[Fixture]:
    """Its broadcast: somebody posts a message."""
    message = json.dumps({"event": "tool-availability-update", "message": DATA}).encode()
    with ExitStack() as opened:
        served = opened.enter_context(started("benchmarks.server", "sse_starlette_broadcast"))
        connection = opened.enter_context(Connection(served.port))
        audience = Audience(served, request("GET", "/events"), ready=b"\r\n\r\n")
        opened.enter_context(audience.readers)
        sending = request("POST", "/send", JSON, message)
        yield Fixture(served=served, audience=audience, begin=lambda: connection.send(sending), end=connection.answer)


Opened = Callable[[], AbstractContextManager[Fixture]]


@asynccontextmanager
async def waited_for(opened: Opened) -> AsyncGenerator[Batch]:
    """The time from an update until its last reader has it."""
    with opened() as fixture:

        async def batch(n: int) -> float:
            waited = 0.0
            for _ in range(n):
                begun = perf_counter()
                fixture.begin()
                fixture.audience.wait_for(fixture.audience.seen + READERS)
                waited += perf_counter() - begun
                fixture.end()
            return waited

        yield batch


@asynccontextmanager
async def worked_for(opened: Opened) -> AsyncGenerator[Batch]:
    """The CPU time of the server for one reader and update."""
    with opened() as fixture:

        async def batch(n: int) -> float:
            before = fixture.served.cpu_s()
            for _ in range(n):
                fixture.begin()
                fixture.audience.wait_for(fixture.audience.seen + READERS)
                fixture.end()
            return (fixture.served.cpu_s() - before) / READERS

        yield batch


@asynccontextmanager
async def answered(opened: Opened) -> AsyncGenerator[Batch]:
    """The time until the plugin has its answer: the 99th percentile."""
    with opened() as fixture:

        async def batch(n: int) -> float:
            waits: list[float] = []
            for _ in range(n * SAMPLES):
                begun = perf_counter()
                fixture.begin()
                fixture.end()
                waits.append(perf_counter() - begun)
                fixture.audience.wait_for(fixture.audience.seen + READERS)
            return n * quantiles(waits, n=100)[98]

        yield batch


ROWS = (
    Row(
        name="update until the last of 1,000 readers has it",
        ours=partial(waited_for, session),
        other=partial(waited_for, bare_transports),
        against="bare transports",
        hold=3.3,
        aim=1.5,
        unit=MILLISECONDS,
        pairs=31,
        batch_s=0.1,
    ),
    Row(
        name="update until the last of 1,000 readers has it",
        ours=partial(waited_for, session),
        other=partial(waited_for, sse_starlette),
        against="sse-starlette",
        hold=1 / 2,
        aim=1 / 4,
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0.1,
    ),
    Row(
        name="server's CPU time a reader and event",
        ours=partial(worked_for, session),
        other=partial(worked_for, bare_transports),
        against="bare transports",
        hold=3.3,
        aim=1.5,
        unit=MICROSECONDS,
        pairs=31,
        batch_s=1e-4,
    ),
    *(
        Row(
            name=f"{what}, 1,000 readers of the session: p99",
            ours=partial(answered, partial(session, MANY_TOOLS, whole=whole)),
            hold=500,
            aim=250,
            unit=MILLISECONDS,
            pairs=3,
            batch_s=0,
        )
        for what, whole in (("register 1,000 tools", True), ("update one of 1,000 tools", False))
    ),
)
