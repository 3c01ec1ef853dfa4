"""Requests of one process that all others of a store answer: to apply a change that is stored, or to reload.

A request is a volatile record `~request/ID`, and each process appends its answer to the record's log. That a process
hears of a request is a hint that may be lost, so that it also looks for requests every two seconds.

A process that answers says so in its lease, and then looks at everything that it may have missed. So a writer that has
committed a change waits for the processes whose leases say that they answer: all others look after the commit.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, Protocol, Self

import orjson

from toolplug.cluster.followed import Follower
from toolplug.cluster.processes import Processes, running_processes
from toolplug.errors import StoreError, StoreUnavailable
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.stores.store import VOLATILE, Change, Store, key_pages

APPLIED_WITHIN_S = 10.0
"""How long a writer waits for the others; longer than a lease, so that one that is paused holds it up only so long."""

_PREFIX = f"{VOLATILE}request/"
_LOOKED_EVERY_S = 0.5
"""Between two looks of a writer at the leases of those that it waits for."""
_KEPT_S = 60.0
"""How long a request is kept that not all have answered: a process that was paused finds it when it goes on."""
_LOG = logging.getLogger("toolplug.stores")


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
