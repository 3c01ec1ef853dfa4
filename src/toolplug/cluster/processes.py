"""The processes that share a store, each with a lease that it renews, and the requests that all of them answer.

What must end with a process, such as an open stream, names the process by its `Processes.name`. A process whose lease
has lapsed, because it was paused or could not reach the store, gets a new name: for all others the old one has ended.

A request, to apply a change that is stored or to reload, is a volatile record `~request/ID`, and each process appends
its answer to the record's log. That a process hears of a request is a hint that may be lost, so that it also looks for
requests every two seconds.

A process that answers says so in its lease, and then looks at everything that it may have missed. So a writer that has
committed a change waits for the processes whose leases say that they answer: all others look after the commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, Protocol, Self

import orjson

from toolplug.cluster.followed import Follower
from toolplug.errors import StoreError, StoreUnavailable
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import VOLATILE, Change, Store, key_pages

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


APPLIED_WITHIN_S = 10.0
"""How long a writer waits for the others; longer than a lease, so that one that is paused holds it up only so long."""

_PREFIX = f"{VOLATILE}request/"
_LOOKED_EVERY_S = 0.5
"""Between two looks of a writer at the leases of those that it waits for."""
_KEPT_S = 60.0
"""How long a request is kept that not all have answered: a process that was paused finds it when it goes on."""


class Answers(NamedTuple):
    """The answers of other processes by their names, and the processes that are alive and have given none in time.

    A process that ended before it answered is in neither.
    """

    given: Mapping[str, object]
    missing: tuple[str, ...]


class Topic(NamedTuple):
    """What a process does for requests of one topic.

    `answer` is called with what a request is about, and returns the answer as JSON; it may be called twice for one
    request. `look` makes up for all requests that this process may have missed. Both may raise `StoreError`, and are
    then called again.
    """

    answer: Callable[[object], Awaitable[object]]
    look: Callable[[], Awaitable[None]]


class CopiedRecords(Protocol):
    """What makes the copies of `FollowedRecords`, and those of a part, new."""

    prefix: str

    async def fresh(self, keys: Collection[str]) -> None: ...
    async def look(self) -> None: ...


async def ask(store: Store, topic: str, about: object, *, within_s: float) -> Answers:
    """Ask all other processes that answer, and wait for each until it has answered or ended. Raises `StoreError`.

    The caller need not be one of the processes. It holds no lock that an answer may need.
    """
    if not store.shared or not (waiting := await _answering(store)):
        return Answers({}, ())
    key = f"{_PREFIX}{store.id}.{secrets.token_hex(8)}"
    value, ttl_s = orjson.dumps([topic, about]), within_s + _KEPT_S
    await store.commit(key, value, ttl_s=ttl_s)
    given: dict[str, object] = {}
    loop, after = asyncio.get_running_loop(), None
    until = loop.time() + within_s
    while waiting and (left_s := until - loop.time()) > 0:
        # Short waits, in between which the leases are looked at: a process that has died answers no more.
        events = await store.events(key, after, wait_s=min(left_s, _LOOKED_EVERY_S))
        for event in events.entries:
            after = event.id
            # Targets are assigned from left to right: `name` has its value when it becomes the key.
            name, given[name] = orjson.loads(event.data)
            waiting.discard(name)
        if not events.known:
            after = None
            await store.commit(key, value, ttl_s=ttl_s)  # the server of the store was restarted
        # `&=`: a process that has come since looks by itself when it begins, and is not waited for.
        elif not events.entries:
            waiting &= await _answering(store)
    if not waiting:
        await store.commit(key, None)
    return Answers(given, tuple(sorted(waiting)))


async def wait_until_applied(store: Store, key: str) -> None:
    """Wait until every other process has applied a change of this record that is committed.

    Raises `StoreError`: also if a process that is alive has not applied it in time. The change is stored in any case.
    """
    topic = key[: key.index("/") + 1]
    missing = (await ask(store, topic, key, within_s=APPLIED_WITHIN_S)).missing
    if missing:
        raise StoreUnavailable(
            f"the change is stored, but {' and '.join(missing)} did not apply it in {APPLIED_WITHIN_S:g} s;"
            " they do when they can"
        )


async def _answering(store: Store) -> set[str]:
    """Return the names of the other processes that answer."""
    running = await running_processes(store)
    return {name for name, process in running.items() if process.answers and not name.startswith(f"{store.id}.")}


class ProcessRequests:
    """The requests that this process answers; used inside `async with`, once all topics are known."""

    def __init__(self, store: Store, processes: Processes) -> None:
        self._store = store
        self._processes = processes
        self._name = ""
        self._topics: dict[str, Topic] = {}
        self._begun: set[str] = set()
        self._follower = Follower(store, _PREFIX, self._hear, self._look)
        self._tasks = BackgroundTasks()

    def answer(self, topic: str, how: Topic) -> None:
        self._topics[topic] = how

    def apply(self, records: CopiedRecords) -> None:
        """Answer that a change of one of these records is applied, once it is."""

        async def fresh(key: object) -> None:
            await records.fresh([str(key)])

        self.answer(records.prefix, Topic(fresh, records.look))

    @property
    def others(self) -> bool:
        """Whether there are other processes, as far as this one knows."""
        return bool(self._processes.others)

    async def wait_until_applied(self, key: str) -> None:
        """Wait until every other process has applied a committed change, as the function `wait_until_applied` does."""
        await wait_until_applied(self._store, key)

    async def ask(self, topic: str, about: object, *, within_s: float) -> Answers:
        """Ask all other processes, as the function `ask` does."""
        return await ask(self._store, topic, about, within_s=within_s)

    async def __aenter__(self) -> Self:
        """Begin to answer. Raises `StoreError`."""
        if self._processes.joined:
            await self._follower.start()
            await self._begin()
            self._processes.listen(self._look_again)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._processes.joined:
            try:
                await self._processes.describe(answers=False)
            except StoreError as failed:
                _LOG.warning("others wait for the answers of this process until its lease ends: %s", failed)
        await self._follower.aclose()
        await self._tasks.cancel()

    async def _begin(self) -> None:
        """Say that this process answers, and look at everything that it may have missed before that."""
        name = self._processes.name
        await self._processes.describe(answers=True)
        for topic in self._topics.values():
            await topic.look()
        self._name = name

    async def _look_again(self) -> None:
        if self._name != self._processes.name:
            await self._begin()
        await self._look()

    async def _look(self) -> None:
        found: set[str] = set()
        async for page in key_pages(self._store, _PREFIX):
            found.update(page)
        # Requests that are gone are forgotten, so that the set stays small.
        self._begun &= found
        for key in found - self._begun:
            await self._take(key, None)

    async def _hear(self, change: Change) -> None:
        if change.revision and change.key not in self._begun:
            await self._take(change.key, change.value)

    async def _take(self, key: str, value: bytes | None) -> None:
        # A request of this process itself.
        if key.startswith(f"{_PREFIX}{self._store.id}."):
            return
        if value is None:
            record = await self._store.read(key)
            if record is None:
                return
            value = record.value
        if key not in self._begun:
            # Before the task starts: the change and the look may both find the request.
            self._begun.add(key)
            topic, about = orjson.loads(value)
            if topic in self._topics:
                self._tasks.start(self._answer(key, self._topics[topic], about), f"toolplug-answer-{topic}")

    async def _answer(self, key: str, topic: Topic, about: object) -> None:
        try:
            answer = await topic.answer(about)
            to = key.removeprefix(_PREFIX).rpartition(".")[0]
            await self._store.extend(key, events=[orjson.dumps([self._processes.name, answer])], to=to)
        except StoreError as failed:
            # The next look takes it up again.
            self._begun.discard(key)
            _LOG.warning("a request of another process is not answered yet: %s", failed)
        except Exception:  # noqa: BLE001  a named boundary: the other process hears that there is no answer
            _LOG.exception("a request of another process is not answered")
