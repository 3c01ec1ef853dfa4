"""A change that one process commits, and all others have applied when the writer goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager

import pytest
from tests.faulty_store import FaultyStore
from tests.virtual_time import VIRTUAL, pass_time, virtual_clock

from toolplug.cluster.followed import FollowedRecords
from toolplug.cluster.processes import (
    LEASE_S,
    RENEWED_EVERY_S,
    Processes,
    ProcessRequests,
    Topic,
    running_processes,
    wait_until_applied,
)
from toolplug.errors import StoreUnavailable
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-exact-settings")]

KEY = "setting/a"
OPERATIONS = ("read", "commit", "extend", "keys", "revisions", "watch", "events")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL


class Process:
    """One process with copies of the records under `setting/`."""

    def __init__(self, inner: MemoryStore, number: int) -> None:
        self.store = FaultyStore(inner)
        self.store.id = f"process{number}"
        self.store.shared = True
        self.lock = asyncio.Lock()
        self.processes = Processes(self.store, clock=virtual_clock)
        self.requests = ProcessRequests(self.store, self.processes)
        self.copies = FollowedRecords(self.store, "setting/", self.load, self.use, lambda _: self.lock)
        self.used: dict[str, str | None] = {}
        self.life = AsyncExitStack()

    async def load(self, value: bytes) -> str:
        return value.decode()

    def use(self, changed: Mapping[str, str | None]) -> None:
        self.used |= changed

    async def join(self) -> None:
        """Take the lease and copy the records."""
        await self.life.enter_async_context(self.processes)
        await self.copies.start()
        self.life.push_async_callback(self.copies.aclose)
        self.requests.apply(self.copies)

    async def answer(self) -> None:
        """Answer the requests of others from now on."""
        await self.life.enter_async_context(self.requests)

    async def set(self, value: str | None) -> None:
        """Change the record as a service does, and wait for the others."""
        async with self.lock:
            revision = await self.store.commit(KEY, None if value is None else value.encode())
            self.copies.put(KEY, revision, value)
        await self.requests.wait_until_applied(KEY)

    @contextmanager
    def holding(self, *operations: str) -> Iterator[None]:
        """In the block these operations of the process do not reach the store; all of them: as SIGSTOP pauses it."""
        for operation in operations:
            self.store.hold(operation)
        try:
            yield
        finally:
            for operation in operations:
                self.store.go(operation)


@pytest.fixture
async def inner() -> AsyncIterator[MemoryStore]:
    async with MemoryStore(clock=virtual_clock) as store:
        yield store


@pytest.fixture
async def four(inner: MemoryStore) -> AsyncIterator[list[Process]]:
    """Three processes that answer, and one that has not joined."""
    processes = [Process(inner, number) for number in range(4)]
    async with AsyncExitStack() as life:
        for process in processes:
            life.push_async_callback(process.life.aclose)
        for process in processes[:3]:
            await process.join()
            await process.answer()
        yield processes


@contextmanager
def within(least_s: float, most_s: float) -> Iterator[None]:
    before = virtual_clock()
    yield
    assert least_s <= virtual_clock() - before <= most_s


async def test_a_change_and_a_removal_are_applied_everywhere_when_the_writer_goes_on(four: list[Process]) -> None:
    here, there, elsewhere, _ = four
    with within(0, 0):
        for value in ("one", "two", None, "three"):
            await here.set(value)
            assert there.used[KEY] == elsewhere.used[KEY] == value
        await there.set("four")
        assert here.used[KEY] == elsewhere.used[KEY] == "four"
    assert await here.store.keys("~request/") == []


async def test_a_change_that_was_pushed_to_nobody_is_found_by_the_next_look(four: list[Process]) -> None:
    here, there, elsewhere, _ = four
    await here.set("old")
    with there.holding("watch"), elsewhere.holding("watch"):
        writing = asyncio.create_task(here.set("new"))
        await pass_time(0)
        assert there.used[KEY] == elsewhere.used[KEY] == "old"
        assert not writing.done()
        with within(0, RENEWED_EVERY_S):
            await writing
        assert there.used[KEY] == elsewhere.used[KEY] == "new"


async def test_a_paused_process_holds_a_writer_up_until_its_lease_ends_and_catches_up(four: list[Process]) -> None:
    here, there, elsewhere, _ = four
    await here.set("old")
    with there.holding(*OPERATIONS):
        with within(LEASE_S - RENEWED_EVERY_S, LEASE_S + 1):
            await here.set("new")
        assert (there.used[KEY], elsewhere.used[KEY]) == ("old", "new")
        with within(0, 0):
            await here.set("newer")
    await pass_time(RENEWED_EVERY_S * 2)
    assert there.used[KEY] == "newer"
    with within(0, 0):
        await here.set("newest")
    assert there.used[KEY] == "newest"


async def test_a_process_that_lapsed_looks_also_where_no_push_comes(four: list[Process]) -> None:
    here, there, _, _ = four
    await here.set("old")
    with there.holding("watch"):
        with there.holding(*(operation for operation in OPERATIONS if operation != "watch")):
            await here.set("new")
        await pass_time(RENEWED_EVERY_S * 2)
        assert there.used[KEY] == "new"


async def test_a_process_that_joins_meanwhile_holds_nobody_up(four: list[Process]) -> None:
    here, there, _, late = four
    with there.holding(*OPERATIONS), within(LEASE_S - RENEWED_EVERY_S, LEASE_S + 1):
        writing = asyncio.create_task(here.set("new"))
        await pass_time(1)
        await late.join()
        with late.holding("watch"):
            await writing
    assert late.used[KEY] == "new"


async def test_a_process_that_begins_to_answer_has_missed_nothing(four: list[Process]) -> None:
    here, _, _, late = four
    await late.join()
    with late.holding("watch"):
        with within(0, 0):
            await here.set("new")
        assert late.used == {}
        answering = asyncio.create_task(late.answer())
        await pass_time(0)
    await answering
    assert late.used[KEY] == "new"


async def test_a_process_that_leaves_holds_nobody_up(four: list[Process]) -> None:
    here, there, _, _ = four
    await there.requests.__aexit__(None, None, None)
    assert [name for name, process in (await running_processes(here.store)).items() if not process.answers] == [
        "process1.1"
    ]
    with within(0, 0):
        await here.set("new")


async def test_a_live_process_that_does_not_apply_a_change_is_named(four: list[Process]) -> None:
    here, there, elsewhere, _ = four
    named = r"is stored, but process1\.1 did not apply it in 10 s"
    with there.holding("revisions"), within(10, 10), pytest.raises(StoreUnavailable, match=named):
        await here.set("new")
    assert elsewhere.used[KEY] == "new"


async def test_a_command_that_is_no_process_waits_as_well(inner: MemoryStore, four: list[Process]) -> None:
    here, *_ = four
    command = FaultyStore(inner)
    command.id, command.shared = "command", True
    with within(0, 0):
        await command.commit(KEY, b"by hand")
        await wait_until_applied(command, KEY)
    assert here.used[KEY] == "by hand"


async def test_a_request_that_the_store_has_lost_is_written_again(inner: MemoryStore, four: list[Process]) -> None:
    here, there, elsewhere, _ = four
    with there.holding("watch"), elsewhere.holding("watch"):
        writing = asyncio.create_task(here.set("new"))
        await pass_time(0.1)
        (request,) = await inner.keys("~request/")
        await inner.commit(request, None)
        await writing
        assert there.used[KEY] == elsewhere.used[KEY] == "new"


async def test_an_answer_is_tried_again_while_the_store_fails(four: list[Process]) -> None:
    here, there, _, _ = four
    failing = ["revisions"]
    there.store.fails = lambda operation: operation in failing
    writing = asyncio.create_task(here.set("new"))
    await pass_time(RENEWED_EVERY_S + 0.5)
    assert not writing.done()
    failing.clear()
    await writing
    assert there.used[KEY] == "new"


async def test_each_process_gives_its_own_answer(four: list[Process]) -> None:
    async def look() -> None: ...

    for number, process in enumerate(four[:3]):

        async def answer(about: object, number: int = number) -> object:
            return [number, about]

        process.requests.answer("name", Topic(answer, look))
    answers = await four[0].requests.ask("name", {"why": "test"}, within_s=5)
    assert answers == ({"process1.1": [1, {"why": "test"}], "process2.1": [2, {"why": "test"}]}, ())


async def test_processes_of_other_versions_are_listed(inner: MemoryStore, four: list[Process]) -> None:
    await inner.commit("~process/old.1", json.dumps({"pid": 7, "host": "h", "since": 1.0, "new": "field"}).encode())
    assert (await running_processes(inner))["old.1"] == ("h", 7, 1.0, "", False)
    with within(0, 0):
        await four[0].set("new")
