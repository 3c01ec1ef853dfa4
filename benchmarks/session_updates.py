"""Updates that are committed to SQLite, of many sessions at once in one process: time on the wall for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.frame import MILLISECONDS, Batch, Row
from benchmarks.plugin import definition, definitions
from benchmarks.serve import settings
from toolplug import Host, Principal, open_host
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.tools.negotiation import Registration, ToolChanges

SESSIONS = 50
TOOLS = 20
ALICE = Principal(subject="alice", tenant="t1", scopes=frozenset({"tools:read", "tools:call", "sessions:write"}))


@asynccontextmanager
async def opened_host() -> AsyncGenerator[Host]:
    """A host in this process, with a file of its own."""
    with TemporaryDirectory() as folder:
        async with open_host(settings(Path(folder))) as host:
            yield host


@asynccontextmanager
async def updated() -> AsyncGenerator[Batch]:
    """Each session updates one of its tools again and again, one update after the other."""
    async with opened_host() as host:
        sessions = [(await host.sessions.create(ALICE)).session for _ in range(SESSIONS)]
        for session in sessions:
            await session.register(Registration(plugin_type="bench", tools=definitions(TOOLS)))
        version = count(1)

        async def update(session: Session, times: int) -> None:
            for _ in range(times):
                await session.update(ToolChanges(modified=[definition(0, version=next(version))]), "benchmark")

        async def batch(n: int) -> float:
            begun = perf_counter()
            await asyncio.gather(*(update(session, -(-n // SESSIONS)) for session in sessions))
            return (perf_counter() - begun) * n / (-(-n // SESSIONS) * SESSIONS)

        yield batch


ROWS = (
    Row(
        name="update committed to SQLite, 50 sessions at once (1 ms: 1,000 a second)",
        ours=updated,
        hold=1,
        aim=0.5,
        unit=MILLISECONDS,
        pairs=21,
        batch_s=0.5,
    ),
)
