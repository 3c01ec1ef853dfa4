"""Rates and concurrency limits of several processes on one store, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faulty_store import FaultyStore
from tests.virtual_time import VIRTUAL, VirtualLoop, pass_time, virtual_clock

from toolplug.catalog.plan import Refusal
from toolplug.cluster.limits import ClusterConcurrency, ClusterRate
from toolplug.cluster.processes import LEASE_S, PREFIX, Processes
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-4-cluster")]

KEY = "~limit/all/x"
UNAVAILABLE = Refusal("the store is unavailable", 1.0)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL


class Process:
    """One process: what it sees of the store, its lease, and one limit of each kind."""

    def __init__(self, inner: MemoryStore, number: int) -> None:
        self.inner = inner
        self.store = FaultyStore(inner)
        self.store.id = f"process{number}"
        self.store.shared = True
        self.processes = Processes(self.store, clock=virtual_clock)
        self.rate = ClusterRate(self.store, self.processes, f"{KEY}/rate", "web", clock=virtual_clock)
        self.permits = ClusterConcurrency(self.store, self.processes, f"{KEY}/calls", "web", clock=virtual_clock)

    def set(self, count: int, per_s: int = 60, queue: int = 0, *, share: bool = False) -> None:
        self.rate.resize(count, per_s, share=share)
        self.permits.change(count, queue, share=share)

    async def begin(self, within_s: float = 0.5) -> Refusal | None:
        return await self.rate.admit(asyncio.get_running_loop().time() + within_s)

    async def enter(self, within_s: float = 0.5) -> Refusal | None:
        return await self.permits.admit(asyncio.get_running_loop().time() + within_s)

    async def __aenter__(self) -> Process:
        await self.processes.__aenter__()
        self.processes.listen(self.rate.look)
        self.processes.listen(self.permits.look)
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.rate.aclose()
        await self.permits.aclose()
        await self.processes.__aexit__(*raised)


@asynccontextmanager
async def processes(count: int = 3, limit: int = 12, **more: Any) -> AsyncIterator[list[Process]]:
    async with AsyncExitStack() as life:
        inner = await life.enter_async_context(MemoryStore(clock=virtual_clock))
        found = [await life.enter_async_context(Process(inner, number)) for number in range(count)]
        for process in found:
            process.set(limit, **more)
        await pass_time(0.01)  # each has heard of the others
        yield found


def slowly(processes: list[Process]) -> None:
    """Let trips to the store take turns of the loop, so that those of several processes overlap."""
    for process in processes:
        process.store.pace = {"read": (1, 1), "commit": (1, 1)}


async def lose(inner: MemoryStore) -> None:
    """Lose all volatile records, as a server does that is started again."""
    for key in [*await inner.keys(KEY), *await inner.keys(PREFIX)]:
        await inner.commit(key, None)


async def admitted(asking: Callable[[], Awaitable[Refusal | None]], times: int) -> int:
    return [await asking() for _ in range(times)].count(None)


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the work of one example in a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work())


async def test_all_processes_together_admit_as_many_calls_in_a_window_as_one() -> None:
    async with processes(limit=12) as three:
        assert [await admitted(process.begin, 12) for process in three] == [12, 0, 0]
        refused = await three[1].begin()
        assert refused == Refusal("web takes 12 calls in 60 s in all processes", pytest.approx(61.0))
        assert three[1].rate.refusal() == refused
        assert three[0].rate.usage == (
            "12 of 12 calls of web began here in the last 60 s, all processes have borrowed 12"
        )
        await pass_time(61.5)
        assert await admitted(three[1].begin, 13) == 12


async def test_what_a_process_has_borrowed_and_not_used_others_may_use() -> None:
    async with processes(limit=36) as three:
        await three[0].begin()
        assert await admitted(three[1].begin, 40) == 33  # the first has borrowed three
        await pass_time(1.1)
        assert await admitted(three[2].begin, 40) == 2


async def test_a_loan_is_used_for_its_part_of_the_window_alone() -> None:
    async with processes(limit=36) as three:
        await three[0].begin()
        for process in three:
            process.store.down = True
        assert await three[0].begin() is None
        await pass_time(1.0)
        assert await three[0].begin() == UNAVAILABLE


async def test_processes_that_borrow_at_once_borrow_no_permit_twice() -> None:
    async with processes(limit=12) as three:
        slowly(three)
        for asking in ("begin", "enter"):
            done = await asyncio.gather(*(getattr(process, asking)() for process in three for _ in range(9)))
            assert done.count(None) == 12


async def test_calls_that_begin_together_share_one_trip() -> None:
    async with processes(limit=12) as three:
        slowly(three)
        before = (await three[0].inner.read(f"{KEY}/rate")).revision  # type: ignore[union-attr]
        begun = await asyncio.gather(*(three[0].begin() for _ in range(14)))
        assert begun.count(None) == 12
        after = (await three[0].inner.read(f"{KEY}/rate")).revision  # type: ignore[union-attr]
        assert after - before <= 2


@pytest.mark.parametrize(("share", "expected"), [(False, 0), (True, 4)])
async def test_without_the_store_calls_are_refused_or_shared(share: bool, expected: int) -> None:
    async with processes(limit=12, share=share) as three:
        for process in three:
            process.store.down = True
        for process in three:
            assert await admitted(process.begin, 6) == expected
            assert await admitted(process.enter, 6) == expected
        assert await three[0].begin() == UNAVAILABLE
        assert await three[0].enter() == UNAVAILABLE
        for process in three:
            process.store.down = False
        await pass_time(8.0)
        # What began without the store counts when it is back.
        assert sum([await admitted(process.begin, 20) for process in three]) == 12 - 3 * expected
        assert sum([await admitted(process.enter, 20) for process in three]) == 12 - 3 * expected


async def test_a_lost_record_is_written_again_before_anyone_borrows_more() -> None:
    async with processes(limit=12) as three:
        await pass_time(2.0)
        assert await admitted(three[0].begin, 10) == 10
        assert await admitted(three[0].enter, 10) == 10
        await lose(three[0].inner)
        lost = "the store has lost how many calls of web were counted"
        assert await three[1].begin() == Refusal(lost, pytest.approx(LEASE_S))
        assert await three[1].enter() == Refusal(lost, pytest.approx(LEASE_S))
        await pass_time(LEASE_S + 3)
        assert await admitted(three[1].begin, 10) == 2
        assert await admitted(three[1].enter, 10) == 2


async def test_permits_are_shared_and_come_back() -> None:
    async with processes(limit=4) as three:
        assert [await admitted(process.enter, 3) for process in three] == [3, 1, 0]
        assert await three[2].enter() == Refusal("4 calls of web running already in all processes", 1.0)
        three[0].permits.on_end()
        await pass_time(0.01)
        assert await three[2].enter() is None
        assert three[2].permits.usage == (
            "1 calls of web run and 0 of 0 wait here, 4 of 4 permits are borrowed by all processes"
        )


async def test_a_call_waits_for_a_permit_of_another_process() -> None:
    async with processes(limit=2, queue=1) as three:
        assert await admitted(three[0].enter, 2) == 2
        waiting = asyncio.create_task(three[1].enter(within_s=60))
        await pass_time(0.05)
        assert await three[1].enter() == Refusal("2 calls of web running already in all processes", 1.0)
        before = virtual_clock()
        three[0].permits.on_end()
        assert await waiting is None
        assert virtual_clock() - before < 0.5  # it was told, and did not look
        with pytest.raises(TimeoutError):
            await three[2].enter(within_s=3)


async def test_the_permits_of_a_process_that_has_ended_are_free() -> None:
    async with processes(limit=2, queue=1) as three:
        assert await admitted(three[0].enter, 2) == 2
        waiting = asyncio.create_task(three[1].enter(within_s=60))
        await pass_time(1.0)
        three[0].store.down = True  # and it does not come back
        before = virtual_clock()
        assert await waiting is None
        assert LEASE_S - 2 < virtual_clock() - before < LEASE_S + 3


async def test_a_process_that_was_paused_counts_its_calls_again_and_admits_none_meanwhile() -> None:
    async with processes(limit=36) as three:
        assert await three[0].enter() is None  # of three permits
        three[0].store.down = True
        await pass_time(7.0)
        assert await three[0].enter() == UNAVAILABLE
        assert await admitted(three[1].enter, 40) == 36
        three[0].store.down = False
        await pass_time(3.0)
        for _ in range(4):
            three[1].permits.on_end()  # which keeps two of them for its next calls
        await pass_time(0.1)
        assert await admitted(three[2].enter, 3) == 1  # the call that ran on has the other one


async def test_a_process_that_no_other_one_has_noticed_yet_keeps_its_permits() -> None:
    async with processes(limit=2) as three:
        assert await admitted(three[0].enter, 2) == 2
        three[1].processes._others.clear()  # it has missed that the first one began
        assert await three[1].enter() == Refusal("2 calls of web running already in all processes", 1.0)


@pytest.mark.parametrize("ended", [False, True])
async def test_a_clock_that_is_set_back_delays_calls_by_one_window_at_most(ended: bool) -> None:
    set_back = 0.0
    async with AsyncExitStack() as life:
        inner = await life.enter_async_context(MemoryStore(clock=lambda: virtual_clock() - set_back))
        one = await life.enter_async_context(Process(inner, 1))
        two = await life.enter_async_context(Process(inner, 2))
        one.set(4, per_s=6)
        two.set(4, per_s=6)
        assert await admitted(one.begin, 4) == 4
        set_back, one.store.down = 3600.0, ended
        assert await admitted(two.begin, 4) == 0
        await pass_time(6.2)
        assert await admitted(two.begin, 4) == 4


Action = Literal["calls", "cut off", "lose"]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["calls", "calls", "calls", "cut off", "lose"]),
        st.integers(1, 9),
        st.sampled_from([0.0, 0.03, 0.1, 0.5, 2.0, 5.9, 6.1]),
    ),
    max_size=40,
)


@settings(max_examples=25, deadline=None)
@given(limit=st.integers(1, 30), steps=STEPS, per_s=st.sampled_from([6, 60]))
def test_no_window_has_more_calls_than_the_limit(
    limit: int, steps: list[tuple[int, Action, int, float]], per_s: int
) -> None:
    async def work() -> None:
        begun: list[float] = []
        async with processes(limit=limit, per_s=per_s) as three:
            slowly(three)
            for number, action, many, pause_s in steps:
                process = three[number]
                if action == "calls":
                    beside = three[(number + 1) % 3]
                    asked = [each.begin() for each in (process, beside) for _ in range(many)]
                    done = await asyncio.gather(*asked)
                    begun += [virtual_clock()] * done.count(None)
                elif action == "cut off":
                    process.store.down = not process.store.down
                elif not any(each.store.down for each in three):
                    await pass_time(2.0)  # a process that has not looked yet cannot know that there was a record
                    await lose(process.inner)
                await pass_time(pause_s)
        for first, last in zip(begun, begun[limit:], strict=False):
            assert last - first >= per_s

    in_virtual_time(work)


@settings(max_examples=20, deadline=None)
@given(limit=st.integers(1, 12), steps=STEPS)
def test_no_more_calls_run_than_the_limit(limit: int, steps: list[tuple[int, Action, int, float]]) -> None:
    async def work() -> None:
        running = [0, 0, 0]
        async with processes(limit=limit) as three:
            slowly(three)
            for number, action, many, pause_s in steps:
                process = three[number]
                if action == "calls":
                    done = await asyncio.gather(*(process.enter() for _ in range(many)))
                    running[number] += done.count(None)
                    assert sum(running) <= limit
                elif action == "lose":
                    await pass_time(2.0)
                    await lose(process.inner)
                for _ in range(running[number] * many // 9):
                    process.permits.on_end()
                    running[number] -= 1
                await pass_time(pause_s)

    in_virtual_time(work)


@pytest.mark.parametrize("limit", [1, 2, 5, 60])
async def test_at_least_half_of_the_limit_can_be_reached(limit: int) -> None:
    async with processes(limit=limit, per_s=60) as three:
        begun = 0
        for second in range(120):
            for number, process in enumerate(three):
                begun += await admitted(process.begin, 1 + (second + number) % 3)
            await pass_time(1.0)
        assert limit <= begun <= 2 * limit
        running = 0
        for _ in range(2 * limit):
            for process in three:
                running += await admitted(process.enter, 1)
                await pass_time(0.01)
        assert running == limit
