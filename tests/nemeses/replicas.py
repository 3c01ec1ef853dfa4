"""Three processes as objects of one virtual loop: real leases, sessions and relays over one store in memory.

Each process has its own way to the store, which takes time, loses pushes, and can be cut; it can be frozen and killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack, aclosing
from contextvars import Context
from random import Random
from typing import Any, TypeVar

from tests.nemeses.frozen_loop import Freezer
from tests.sessions.fixtures import LIMITS, ArrangedNeighbours, planning
from tests.virtual_time import virtual_clock

from toolplug.cluster.processes import PREFIX, Processes
from toolplug.errors import StoreUnavailable
from toolplug.parts.sessions.service import Sessions
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import KEPT_EVENTS, Change, DelegatingStore, Events, Missed, Record, Store

T = TypeVar("T")

_NETWORK = Context()
"""Of trips to the store: one that has begun arrives also if its process is frozen or cancelled meanwhile."""


class SharedMemory(MemoryStore):
    """The store itself."""

    def __init__(self) -> None:
        super().__init__(clock=virtual_clock)

    def has(self, key: str) -> bool:
        """Return True if there is a record, without a trip."""
        return self._live(key) is not None


class Way(DelegatingStore):
    """The way of one process to the store: trips and pushes take so long at most, a part of the pushes is lost."""

    def __init__(
        self, store: Store, name: str, numbers: Random, *, trip_s: float, push_s: float, lost: float = 0.05
    ) -> None:
        super().__init__(store)
        self.id = name
        self.shared = True
        self.cut = False
        self._numbers = numbers
        self._trip_s = trip_s
        self._push_s = push_s
        self._lost = lost

    async def read(self, key: str) -> Record | None:
        return await self._trip(lambda: self._store.read(key))

    async def commit(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int | None = None,
        ttl_s: float | None = None,
        events: Sequence[bytes] = (),
        to: str | None = None,
    ) -> int:
        return await self._trip(
            lambda: self._store.commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        )

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        return await self._trip(lambda: self._store.extend(key, events=events, ttl_s=ttl_s, to=to))

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        return await self._trip(lambda: self._store.keys(prefix, after=after, limit=limit))

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        return await self._trip(lambda: self._store.revisions(keys))

    async def events(self, key: str, after: int | None, *, wait_s: float = 0.0, limit: int = KEPT_EVENTS) -> Events:
        found = await self._store.events(key, after, wait_s=wait_s, limit=limit)
        await self._travel()
        return found

    async def watch(self, prefix: str) -> AsyncGenerator[Change | Missed]:
        async with aclosing(self._store.watch(prefix)) as items:
            async for item in items:
                if isinstance(item, Change) and self._numbers.random() < self._lost:
                    continue
                await self._travel(self._push_s)
                yield item

    async def _trip(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check()

        async def there() -> T:
            await self._travel()
            return await operation()

        answer = await asyncio.shield(asyncio.get_running_loop().create_task(there(), context=_NETWORK))
        await self._travel()
        return answer

    async def _travel(self, most_s: float | None = None) -> None:
        await asyncio.sleep(self._numbers.uniform(0, self._trip_s / 2 if most_s is None else most_s))
        self._check()

    def _check(self) -> None:
        if self.cut:
            raise StoreUnavailable("the way to the store is cut")


class ReplicaDied(Exception):
    """The process of a request has died before it has answered."""


class Replica:
    """One process. Whatever asks it is cut off when it dies."""

    def __init__(self, way: Way, sessions: type[Sessions], processes: type[Processes]) -> None:
        self.way = way
        self.freezer = Freezer()
        self.processes = processes(way, clock=virtual_clock)
        self.sessions: Sessions
        self.steady_since = virtual_clock()
        self.dead = asyncio.Event()
        self._class = sessions
        self._life = AsyncExitStack()

    async def start(self) -> None:
        """Begin to serve."""
        await self.ask(self._open())

    async def _open(self) -> None:
        planner = await self._life.enter_async_context(planning())
        await self._life.enter_async_context(self.processes)
        serving = self._class(self.way, planner, ArrangedNeighbours(), limits=LIMITS, processes=self.processes)
        self.sessions = await self._life.enter_async_context(serving)

    async def ask(self, work: Coroutine[Any, Any, T], within_s: float | None = None) -> T:
        """Run a request in the process and return its answer. Raises `ReplicaDied` and `TimeoutError`.

        A client that has no answer in time leaves: the request is cancelled when the process runs.
        """
        task = self.run(work)
        died = asyncio.create_task(self.dead.wait())
        try:
            await asyncio.wait({task, died}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            died.cancel()
            if not task.done():
                task.cancel()
                task.add_done_callback(_forget)
        if self.dead.is_set():
            raise ReplicaDied
        if not task.done():
            raise TimeoutError
        return task.result()

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in the process."""
        task = asyncio.get_running_loop().create_task(work, context=self.freezer.context.copy())
        task.add_done_callback(_forget)
        return task

    async def pause(self, seconds: float) -> None:
        """Freeze the process for so long."""
        self.freezer.freeze()
        await asyncio.sleep(seconds)
        self.steady_since = virtual_clock()
        self.freezer.go_on()

    async def cut(self, seconds: float) -> None:
        """Cut the process off from the store for so long."""
        self.way.cut = True
        await asyncio.sleep(seconds)
        self.steady_since = virtual_clock()
        self.way.cut = False

    async def die(self) -> None:
        """End at once: nothing that it still does reaches anybody."""
        self.way.cut = True
        self.dead.set()
        self.freezer.go_on()
        await self.run(self._life.aclose())

    async def stop(self) -> None:
        """End in order."""
        await self.run(self._life.aclose())

    def steady(self, for_s: float) -> bool:
        """Return True if it has run and reached the store for so long."""
        disturbed = self.dead.is_set() or self.freezer.frozen or self.way.cut
        return not disturbed and virtual_clock() - self.steady_since >= for_s

    @property
    def lease(self) -> str:
        """The key of its lease."""
        return PREFIX + self.processes.name


def _forget(task: asyncio.Task[Any]) -> None:
    """Take the error of a request whose client has left."""
    if not task.cancelled():
        task.exception()
