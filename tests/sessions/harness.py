"""Two sessions of two tenants in one host, on a store that takes its time and fails, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from tests.faulty_store import FaultyStore
from tests.sessions.fixtures import LIMITS, ArrangedNeighbours, turns
from tests.sessions.observers import Ledger, WatchedStore
from tests.virtual_time import EPOCH, VirtualLoop

from toolplug.catalog.call import Principal
from toolplug.errors import StoreError
from toolplug.execution.plans import CallServices
from toolplug.execution.task_runner import TaskRunner
from toolplug.parts.sessions.expiry import latest_expiry
from toolplug.parts.sessions.limits import SessionLimits
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.tools.session_tool import SessionPlanner
from toolplug.stores.store import Store

TTL_S = 120.0
SMALL: SessionLimits = replace(LIMITS, max_waiting_calls=2, ttl_s=TTL_S)
TENANTS = ("t0", "t1")


@dataclass(frozen=True, kw_only=True)
class Seams:
    """What the world is made of; a seeded bug comes in here."""

    sessions: type[Sessions] = Sessions
    planner: Callable[[CallServices], SessionPlanner] = SessionPlanner
    store: Callable[[Store], FaultyStore] = FaultyStore


class Harness:
    """What begins here is a task of `work`; what one of them raises is raised by whatever runs the loop next."""

    def __init__(self, seams: Seams, *, kept_events: int) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        loop = self.runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.seams = seams
        self.ledgers: dict[str, Ledger] = {}
        self.inner = WatchedStore(lambda: EPOCH + loop.time(), kept_events, self.ledgers)
        self.store = seams.store(self.inner)
        self.task_runner = TaskRunner()
        self.slots: list[Session | None] = [None, None]
        self.work: set[asyncio.Task[Any]] = set()
        self._run(self._begin())

    def turns(self, count: int) -> None:
        """Everything goes on for so many turns of the loop."""
        self._run(turns(count))

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self._run(asyncio.sleep(seconds))

    def pace(self, operation: str, before: int, after: int) -> None:
        """How long the store takes for an operation from now on."""
        self.store.pace[operation] = (before, after)

    def fail(self, after: int) -> None:
        """The store fails at one of its next operations."""
        left = after

        def fails(_: str) -> bool:
            nonlocal left
            left -= 1
            return left == -1

        self.store.fails = fails

    def heal(self) -> None:
        """The store works from now on, and at once."""
        self.store.down, self.store.fails = False, lambda _: False
        self.store.pace.clear()

    def begin_again(self) -> None:
        """Another host on the same store."""
        self._run(self._stop())
        self.store = self.seams.store(self.inner)
        self._run(self._start())

    def come_to_nothing(self) -> None:
        """The host stops, and nothing of it is left."""
        self._run(self._close())
        assert self.loop.timers() == [], "timers are left"

    def close(self) -> None:
        """Leave the world as it is."""
        self.runner.close()

    async def _begin(self) -> None:
        await self.task_runner.open()
        await self.inner.__aenter__()
        await self._start()
        for slot in range(len(self.slots)):
            await self._create(slot)

    async def _start(self) -> None:
        self.sessions = self.seams.sessions(
            self.store, self.seams.planner(CallServices(runner=self.task_runner)), ArrangedNeighbours(), limits=SMALL
        )
        await self.sessions.__aenter__()
        for slot, session in enumerate(self.slots):
            if session is not None:
                self.slots[slot] = await self._find_again(session.code, self.ledgers[f"session/{session.code}"])

    def _session(self, slot: int) -> Session | None:
        """The session in this place, if it is not over."""
        session = self.slots[slot]
        return session if session is not None and session.state.gone is None else None

    async def _find_again(self, code: str, ledger: Ledger) -> Session | None:
        """A session after a restart: as it was written, or over."""
        found = [live for live in self.sessions.live if live.code == code]
        if found:
            assert found[0].revision == ledger.revision, "an acknowledged change was lost"
            return found[0]
        record = await self.inner.read(f"session/{code}")
        assert ledger.over or record is None or latest_expiry(record, TTL_S) <= self.inner.now(), "a session was lost"
        ledger.over = True
        return None

    async def _stop(self) -> None:
        await self.sessions.aclose()
        await asyncio.gather(*self.work, return_exceptions=True)

    async def _close(self) -> None:
        await self._stop()
        await self.inner.aclose()
        await self.task_runner.aclose()
        await turns(5)
        left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == [], "tasks are left"

    async def _create(self, slot: int) -> None:
        try:
            session = (await self.sessions.create(Principal(tenant=TENANTS[slot]))).session
        except StoreError:
            return
        self.ledgers[f"session/{session.code}"] = Ledger(slot)
        self.slots[slot] = session

    async def _now(self, act: Callable[[], None]) -> None:
        """Act on the loop, within one turn."""
        act()

    def _go(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.work.add(task)
        return task

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        self.runner.run(work)
        self._raise_what_failed()

    def _raise_what_failed(self) -> None:
        for task in [task for task in self.work if task.done()]:
            self.work.discard(task)
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
