"""A change of the registry that 10,000 sessions see: how long the event loop is blocked by it, at a stretch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import perf_counter

from benchmarks.frame import MILLISECONDS, Batch, Row
from benchmarks.plugin import definitions
from benchmarks.session_updates import ALICE, opened_host
from toolplug import Principal
from toolplug.parts.sessions.tools.negotiation import Registration

SESSIONS = 10_000
TOOLS = 20
TURNS_AFTER = 100
OPERATOR = Principal(subject="operator", scopes=frozenset({"admin", "operator"}))


class Turns:
    """Takes every turn of the loop, and remembers the longest."""

    def __init__(self) -> None:
        self.longest: float = 0.0

    async def watch(self) -> None:
        """Watch until cancelled."""
        before = perf_counter()
        while True:
            await asyncio.sleep(0)
            now = perf_counter()
            self.longest, before = max(self.longest, now - before), now


@asynccontextmanager
async def changed() -> AsyncGenerator[Batch]:
    """Switch a provider of the registry off and on; every session has a view that has been read."""
    async with opened_host() as host:
        views = [host.executor_for(ALICE)]
        for _ in range(SESSIONS):
            session = (await host.sessions.create(ALICE)).session
            await session.register(Registration(plugin_type="bench", tools=definitions(TOOLS)))
            views.append(host.executor_for(ALICE, session=session.code))

        async def batch(n: int) -> float:
            blocked = 0.0
            for _ in range(n):
                for change in (host.disable, host.enable):
                    assert all(view.catalog for view in views[1:])
                    turns = Turns()
                    watching = asyncio.create_task(turns.watch())
                    await change("hello", by=OPERATOR)
                    for _ in range(TURNS_AFTER):
                        await asyncio.sleep(0)
                    watching.cancel()
                    blocked += turns.longest / 2
            return blocked

        yield batch


ROWS = (
    Row(
        name="registry change under 10,000 session views: loop blocked for",
        ours=changed,
        hold=15,
        aim=7,
        unit=MILLISECONDS,
        pairs=15,
        batch_s=0,
    ),
)
