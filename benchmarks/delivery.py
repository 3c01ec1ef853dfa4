"""Whether every reader gets every event once and in order, and whether idle streams stay: failures are counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from time import monotonic

from benchmarks.connection import Connection
from benchmarks.frame import COUNT, Batch, Row
from benchmarks.plugin import UPDATE, Plugin, definition, definitions
from benchmarks.readers import Readers
from benchmarks.serve import hosted

READERS = 1000
UPDATES_A_SECOND = 5
UPDATES = 60 * UPDATES_A_SECOND
LATE_S = 5.0
"""How long events may still come after the last update."""

IDLE = 3000
IDLE_A_SESSION = 100
IDLE_S = 40.0
LEAST_HEARTBEATS = 2
"""How many come at least in `IDLE_S`, one every 15 seconds."""

HEARTBEAT = b"event: heartbeat\n"
_REVISION = re.compile(rb'"revision": ?(\d+)')


class Seen:
    """The revisions that each reader was told of, in the order in which it was."""

    def __init__(self) -> None:
        self.revisions: list[list[int]] = [[] for _ in range(READERS)]
        self.readers: Readers = Readers(self._see)

    def _see(self, number: int, event: bytes) -> None:
        if UPDATE in event:
            found = _REVISION.search(event)
            assert found is not None
            self.revisions[number].append(int(found[1]))

    def failures(self, accepted: list[int]) -> int:
        """Events that were lost or doubled, and one for each reader whose events were out of order."""
        wanted = Counter(accepted)
        failed = 0
        for told in self.revisions:
            got = Counter(told)
            failed += (wanted - got).total() + (got - wanted).total() + (told != sorted(told))
        return failed


@asynccontextmanager
async def followed() -> AsyncGenerator[Batch]:
    """For a minute, update a session that many read, and count what went wrong."""
    with ExitStack() as opened:
        served = opened.enter_context(hosted())
        with Connection(served.port) as lending:
            plugin, seen = Plugin.lending(lending, definitions(20)), Seen()
        opened.enter_context(seen.readers)
        for _ in range(READERS):
            seen.readers.open(served.port, plugin.reading())
        connection = opened.enter_context(Connection(served.port))

        async def batch(n: int) -> float:
            accepted: list[int] = []
            begun = monotonic()
            for number in range(n * UPDATES):
                seen.readers.drain_for(begun + number / UPDATES_A_SECOND - monotonic())
                answer: dict[str, int] = json.loads(connection.ask(plugin.update(definition(0, version=number + 1))))
                accepted.append(answer["revision"])
            seen.readers.drain_for(LATE_S)
            return seen.failures(accepted)

        yield batch


@asynccontextmanager
async def held() -> AsyncGenerator[Batch]:
    """Leave many streams alone, and count those that were closed or missed a heartbeat."""
    beats: Counter[int] = Counter()

    def see(number: int, event: bytes) -> None:
        beats[number] += HEARTBEAT in event

    with hosted() as served, Readers(see) as readers:
        for _ in range(IDLE // IDLE_A_SESSION):
            with Connection(served.port) as lending:
                plugin = Plugin.lending(lending, definitions(20))
            for _ in range(IDLE_A_SESSION):
                readers.open(served.port, plugin.reading())

        async def batch(n: int) -> float:
            beats.clear()
            readers.drain_for(n * IDLE_S)
            return sum(beats[number] < n * LEAST_HEARTBEATS for number in range(IDLE))

        yield batch


ROWS = (
    Row(
        name="3,000 idle streams: closed, or without a heartbeat",
        ours=held,
        hold=0,
        aim=0,
        unit=COUNT,
        pairs=1,
        batch_s=0,
    ),
    Row(
        name="1,000 readers, 5 events a second, a minute: events lost, doubled or out of order",
        ours=followed,
        hold=0,
        aim=0,
        unit=COUNT,
        pairs=1,
        batch_s=0,
    ),
)
