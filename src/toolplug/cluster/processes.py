"""The processes that share a store, each with a lease that it renews.

What must end with a process, such as an open stream, names the process by its `Processes.name`. A process whose lease
has lapsed, because it was paused or could not reach the store, gets a new name: for all others the old one has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, Self

import orjson

from toolplug.cluster.followed import Follower
from toolplug.errors import StoreError, StoreUnavailable
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import VOLATILE, Change, Store

PREFIX = f"{VOLATILE}process/"
# Three renewals: one may be late and one may fail without an end of the lease.
LEASE_S = 6.0
RENEWED_EVERY_S = 2.0
VALID_S = 5.0
"""Seconds from the start of a renewal for which a process relies on it; less than `LEASE_S`, as clocks differ."""

_LOG = logging.getLogger("toolplug.stores")


def since_boot() -> float:
    """Return seconds on a clock that goes on while the machine sleeps."""
    # `monotonic` stands still on Linux while the machine sleeps: a laptop that wakes up would trust a lease that the
    # others have seen end hours ago.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class RunningProcess(NamedTuple):
    """What the lease of a process says of it: `since` is on the store's clock, `config` a digest of its configuration.

    `answers`: it takes note of the requests of others (`process_requests`). `config` is "" before it is known.
    """

    host: str
    pid: int
    since: float
    config: str = ""
    answers: bool = False


async def running_processes(store: Store) -> dict[str, RunningProcess]:
    """Return the processes that have a lease, by their names. Raises `StoreError`."""
    keys = await store.keys(PREFIX)
    records = await asyncio.gather(*(store.read(key) for key in keys))
    return {
        key.removeprefix(PREFIX): _process(record.value)
        for key, record in zip(keys, records, strict=True)
        if record is not None
    }


def _process(value: bytes) -> RunningProcess:
    """Return what a lease says; processes of other versions may say more or less."""
    about = orjson.loads(value)
    return RunningProcess(**{name: about[name] for name in RunningProcess._fields if name in about})


class Processes:
    """This process among those that share a store; used inside `async with`.

    A store that is not shared has one process, whose lease needs no record. A process that is not `serving`, such as a
    command, takes no lease.
    """

    def __init__(self, store: Store, *, serving: bool = True, clock: Callable[[], float] = since_boot) -> None:
        self.joined: bool = store.shared and serving
        self._store = store
        self._clock = clock
        self._number = 1
        self._valid_until = 0.0
        self._others: set[str] = set()
        self._follower = Follower(store, PREFIX, self._hear, self._look)
        self._tasks = BackgroundTasks()
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        self._news = asyncio.Event()
        self._about = RunningProcess(socket.gethostname(), os.getpid(), 0.0)

    @property
    def name(self) -> str:
        """The present name of this process: the store's id and a number that rises when the lease has lapsed."""
        return f"{self._store.id}.{self._number}"

    @property
    def valid(self) -> bool:
        """True while no other process may think that this one has ended."""
        return not self.joined or self._clock() < self._valid_until

    @property
    def others(self) -> frozenset[str]:
        """The names of all other running processes, as far as this one knows."""
        return frozenset(self._others)

    def runs(self, name: str) -> bool:
        """Return True if the process of this name runs, as far as this one knows."""
        return name == self.name or name in self._others

    async def running(self, names: Collection[str]) -> frozenset[str]:
        """Return those of these processes that run; the store is asked about unknown ones. Raises `StoreError`."""
        unknown = [PREFIX + name for name in names if not self.runs(name)]
        # Asked for, since the process may have begun a moment ago.
        found = await self._store.revisions(unknown) if unknown else {}
        return frozenset(name for name in names if found.get(PREFIX + name, 1))

    def check(self) -> None:
        """Raise `StoreUnavailable` if the lease of this process has lapsed."""
        if not self.valid:
            raise StoreUnavailable("this process has not reached its store for 5 s; it goes on when it does")

    def listen(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Call this after each look at the other processes: every two seconds, and when one begins or ends.

        The name of this process may be a new one, after its lease had lapsed.
        """
        self._listeners.append(listener)

    async def __aenter__(self) -> Self:
        """Take the lease. Raises `StoreError`."""
        if self.joined:
            self._about = self._about._replace(since=self._store.now())
            # The lease first: another process that hears of this one must find it.
            await self._take()
            await self._follower.start()
            self._tasks.start(self._renew(), "toolplug-process-lease")
            self._tasks.start(self._tell(), "toolplug-processes")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.cancel()
        await self._follower.aclose()
        if self.joined:
            try:
                await self._store.commit(PREFIX + self.name, None)
            except StoreError as failed:
                _LOG.warning("the lease of this process ends in %g s: it cannot be removed: %s", LEASE_S, failed)

    async def describe(self, *, config: str | None = None, answers: bool | None = None) -> None:
        """Change what the lease says of this process, see `RunningProcess`. Raises `StoreError`."""
        about = self._about
        self._about = about._replace(
            config=about.config if config is None else config, answers=about.answers if answers is None else answers
        )
        # One that has lapsed is written with its next name.
        if self.joined and self.valid:
            await self._write()

    async def _write(self) -> None:
        await self._store.commit(PREFIX + self.name, orjson.dumps(self._about._asdict()), ttl_s=LEASE_S)

    async def _take(self) -> None:
        # Before the request: its time counts for the lease in the store, which begins later, never earlier.
        began = self._clock()
        await self._write()
        self._valid_until = began + VALID_S

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY_S)
            try:
                began = self._clock()
                if self.valid and await self._store.extend(PREFIX + self.name, ttl_s=LEASE_S):
                    self._valid_until = began + VALID_S
                else:
                    # A new name: for all others the process of the old one has ended, and they have taken over what it
                    # had.
                    self._number += 1
                    _LOG.warning("the lease of this process has lapsed; it goes on under a new one")
                    await self._take()
                await self._look()
            except StoreError as failed:
                _LOG.warning("the lease of this process cannot be renewed: %s", failed)

    async def _look(self) -> None:
        names = {key.removeprefix(PREFIX) for key in await self._store.keys(PREFIX)}
        self._others = names - {self.name}
        self._news.set()

    async def _hear(self, change: Change) -> None:
        name = change.key.removeprefix(PREFIX)
        # A lease of this process is no news; one of an earlier name of it ends by itself.
        if name == self.name:
            return
        if change.revision:
            self._others.add(name)
        else:
            self._others.discard(name)
        self._news.set()

    async def _tell(self) -> None:
        """Call the listeners, one round at a time; the renewal of the lease does not wait for them."""
        while True:
            await self._news.wait()
            self._news.clear()
            for listener in self._listeners:
                try:
                    await listener()
                except StoreError as failed:
                    _LOG.warning("what other processes have left cannot be taken over yet: %s", failed)
                except Exception:  # noqa: BLE001  a named boundary: nobody waits for this task
                    _LOG.exception("a look at what other processes have left failed")
