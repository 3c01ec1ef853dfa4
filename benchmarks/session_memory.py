"""What sessions and their readers weigh: how much the resident memory of a server grows by them, SQLite behind it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from benchmarks.connection import Connection
from benchmarks.frame import KIBIBYTES, MEGABYTES, Batch, Row
from benchmarks.plugin import Plugin, definitions
from benchmarks.readers import Readers
from benchmarks.serve import hosted

SESSIONS = 10_000
READERS = 3000
TOOLS = 20
WARM = 100

Lent = Callable[[int], Sequence[dict[str, object]]]
"""The tools of a session, by its number."""


@asynccontextmanager
async def sessions(lent: Lent) -> AsyncGenerator[Batch]:
    """The memory of all sessions together; what a server takes for its first hundred is not counted."""

    async def batch(n: int) -> float:
        grown = 0
        for _ in range(n):
            with hosted() as served, Connection(served.port) as connection:
                for number in range(WARM):
                    Plugin.lending(connection, lent(number))
                before = served.resident()
                for number in range(WARM, WARM + SESSIONS):
                    Plugin.lending(connection, lent(number))
                grown += served.resident() - before
        return grown

    yield batch


@asynccontextmanager
async def readers() -> AsyncGenerator[Batch]:
    """The memory of one idle reader among many of one session; the first hundred are not counted."""

    async def batch(n: int) -> float:
        grown = 0.0
        for _ in range(n):
            with (
                hosted() as served,
                Connection(served.port) as connection,
                Readers(lambda number, event: None) as watching,
            ):
                plugin = Plugin.lending(connection, definitions(TOOLS))
                for _ in range(WARM):
                    watching.open(served.port, plugin.reading())
                before = served.resident()
                for _ in range(READERS):
                    watching.open(served.port, plugin.reading())
                grown += (served.resident() - before) / READERS
        return grown

    yield batch


def _shared(number: int) -> Sequence[dict[str, object]]:
    return definitions(TOOLS)


def _own(number: int) -> Sequence[dict[str, object]]:
    return definitions(TOOLS, owner=f"session {number}")


ROWS = (
    Row(
        name="memory of an idle reader",
        ours=readers,
        hold=18,
        aim=13,
        unit=KIBIBYTES,
        pairs=3,
        batch_s=0,
    ),
    *(
        Row(
            name=f"memory of 10,000 sessions of 20 tools, {kind}",
            ours=partial(sessions, lent),
            hold=hold,
            aim=aim,
            unit=MEGABYTES,
            pairs=1,
            batch_s=0,
        )
        for kind, lent, hold, aim in (
            ("shared definitions", _shared, 100, 60),
            ("schemas of their own", _own, 600, 500),
        )
    ),
)
