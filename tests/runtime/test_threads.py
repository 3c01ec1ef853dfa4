"""The pool of threads of one provider: bounded, and fair to its tenants."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from toolplug.runtime import threads
from toolplug.runtime.threads import FairThreads, TooManyWaiting

pytestmark = pytest.mark.anyio


class Gate:
    """A function that waits until it is opened."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.begun: list[str] = []

    def wait(self, name: str) -> str:
        self.begun.append(name)
        self.event.wait(20)
        return name


async def begun(gate: Gate, count: int) -> None:
    async with asyncio.timeout(10):
        while len(gate.begun) < count:
            await asyncio.sleep(0)


async def test_one_owner_with_endless_work_leaves_half_of_the_threads_to_the_others() -> None:
    gate, pool = Gate(), FairThreads("test", 4)
    slow = [asyncio.create_task(pool.run("alice", lambda n=n: gate.wait(f"a{n}"))) for n in range(8)]
    await begun(gate, 2)
    assert await asyncio.wait_for(pool.run("bob", lambda: "bob"), 10) == "bob"
    assert len(gate.begun) == 2
    gate.event.set()
    assert await asyncio.gather(*slow) == [f"a{n}" for n in range(8)]
    pool.close()


async def test_owners_that_wait_get_a_thread_in_turn() -> None:
    gate, pool = Gate(), FairThreads("test", 1)
    order: list[str] = []
    first = asyncio.create_task(pool.run("alice", lambda: gate.wait("first")))
    await begun(gate, 1)
    waiting = [
        asyncio.create_task(pool.run(owner, lambda name=name: order.append(name)))
        for owner, name in (("alice", "a1"), ("alice", "a2"), ("alice", "a3"), ("bob", "b1"), ("carol", "c1"))
    ]
    await asyncio.sleep(0)
    gate.event.set()
    await asyncio.gather(first, *waiting)
    assert order == ["a1", "b1", "c1", "a2", "a3"]
    pool.close()


async def test_work_of_a_caller_that_was_cancelled_is_not_begun() -> None:
    gate, pool = Gate(), FairThreads("test", 1)
    ran: list[str] = []
    first = asyncio.create_task(pool.run("alice", lambda: gate.wait("first")))
    await begun(gate, 1)
    dropped = asyncio.create_task(pool.run("alice", lambda: ran.append("dropped")))
    kept = asyncio.create_task(pool.run("alice", lambda: ran.append("kept")))
    await asyncio.sleep(0)
    dropped.cancel()
    gate.event.set()
    await asyncio.gather(first, kept)
    assert ran == ["kept"]
    pool.close()


async def test_a_function_has_the_callers_context_and_its_error_is_raised() -> None:
    seen: ContextVar[str] = ContextVar("seen", default="")
    seen.set("mine")
    pool = FairThreads("test")
    assert await pool.run("alice", seen.get) == "mine"
    with pytest.raises(KeyError, match="gone"):
        await pool.run("alice", lambda: {}["gone"])
    pool.close()


async def test_an_owner_may_have_so_many_waiting_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "POOL_WAITING", 2)
    gate, pool = Gate(), FairThreads("test", 1)
    tasks = [asyncio.create_task(pool.run("alice", lambda: gate.wait("a"))) for _ in range(3)]
    await begun(gate, 1)
    with pytest.raises(TooManyWaiting):
        await pool.run("alice", lambda: None)
    bob = asyncio.create_task(pool.run("bob", lambda: "bob"))
    gate.event.set()
    assert await bob == "bob"
    await asyncio.gather(*tasks)
    pool.close()


async def test_what_waits_when_the_pool_is_closed_is_refused() -> None:
    gate, pool = Gate(), FairThreads("test", 1)
    first = asyncio.create_task(pool.run("alice", lambda: gate.wait("first")))
    await begun(gate, 1)
    waits = asyncio.create_task(pool.run("alice", lambda: None))
    await asyncio.sleep(0)
    pool.close()
    async with asyncio.timeout(5):  # at once, though the one thread is busy
        with pytest.raises(RuntimeError, match="closed"):
            await waits
        with pytest.raises(RuntimeError, match="closed"):
            await pool.run("alice", lambda: None)
    gate.event.set()
    assert await first == "first"


async def test_a_thread_answers_though_the_clock_refuses_a_sleep_of_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: float) -> None:
        raise OSError(22, "Invalid argument")  # as libfaketime does, which steps the clocks of some tests

    monkeypatch.setattr(threads, "sleep", refuse)
    async with asyncio.timeout(20):
        assert await threads.in_own_thread(lambda: "done") == "done"
