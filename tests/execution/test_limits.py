"""What must admit a call: concurrency with its queue, rate, breaker; all with clocks of the test."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.execution.harness import Harness, cancelled, turns

from toolplug.catalog.plan import Refusal
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.limiters import Breaker, ConcurrencyLimit, RateLimit
from toolplug.testing.store_fixtures import ManualClock

pytestmark = pytest.mark.anyio

NEVER = float("inf")


def soon() -> float:
    return asyncio.get_running_loop().time() + 0.01


def late() -> float:
    return asyncio.get_running_loop().time() + 60


@pytest.mark.requirement("C-3-limited")
async def test_as_many_calls_as_places_are_admitted_and_the_next_is_refused_at_once() -> None:
    permits = ConcurrencyLimit(2, 0, "plays")

    assert [await permits.admit(late()) for _ in range(3)] == [
        None,
        None,
        Refusal("2 calls of plays running already", 1.0),
    ]
    permits.on_end()
    assert await permits.admit(late()) is None


@pytest.mark.requirement("C-3-limited")
async def test_the_queue_is_served_in_order_and_bounded() -> None:
    permits, served = ConcurrencyLimit(1, 2, "plays"), []

    async def waits(name: str) -> None:
        refusal = await permits.admit(late())
        served.append((name, refusal is None))

    await permits.admit(late())
    waiting = [asyncio.ensure_future(waits(name)) for name in "abc"]
    await turns(3)
    assert served == [("c", False)]
    for _ in range(2):
        permits.on_end()
        await turns(3)
    await asyncio.gather(*waiting)
    assert served == [("c", False), ("a", True), ("b", True)]


async def test_a_newcomer_does_not_overtake_the_queue() -> None:
    permits = ConcurrencyLimit(1, 2, "plays")
    await permits.admit(late())
    first = asyncio.ensure_future(permits.admit(late()))
    await turns(3)
    permits.on_end()
    second = asyncio.ensure_future(permits.admit(late()))
    await turns(3)

    assert (first.done(), second.done()) == (True, False)
    permits.on_end()
    assert await second is None


@pytest.mark.requirement("LAW-5")
async def test_a_wait_that_ends_at_its_deadline_takes_nothing() -> None:
    permits = ConcurrencyLimit(1, 1, "plays")
    await permits.admit(late())

    with pytest.raises(TimeoutError):
        await permits.admit(soon())
    permits.on_end()
    assert await permits.admit(late()) is None
    assert isinstance(await ConcurrencyLimit(0, 0, "plays").admit(late()), Refusal)


@pytest.mark.requirement("LAW-5", "LAW-4")
async def test_a_place_that_comes_together_with_the_callers_cancellation_is_handed_on() -> None:
    permits = ConcurrencyLimit(1, 2, "plays")
    await permits.admit(late())
    first, second = (asyncio.ensure_future(permits.admit(late())) for _ in range(2))
    await turns(3)
    permits.on_end()
    first.cancel()
    assert await cancelled(first)
    assert await second is None


@pytest.mark.requirement("LAW-5", "LAW-4")
async def test_a_cancelled_waiter_that_is_passed_over_in_the_same_turn_is_only_cancelled() -> None:
    permits = ConcurrencyLimit(1, 2, "plays")
    await permits.admit(late())
    first, second = (asyncio.ensure_future(permits.admit(late())) for _ in range(2))
    await turns(3)
    first.cancel()
    permits.on_end()

    assert await cancelled(first)
    assert await second is None
    permits.on_end()
    assert await permits.admit(late()) is None


@pytest.mark.requirement("LAW-4")
async def test_a_callers_cancellation_after_the_deadline_is_still_its_cancellation() -> None:
    permits = ConcurrencyLimit(0, 1, "plays")
    waiting = asyncio.ensure_future(permits.admit(asyncio.get_running_loop().time() - 1))
    await asyncio.sleep(0)
    waiting.cancel()

    assert await cancelled(waiting)


@pytest.mark.requirement("I2-3-state-survives", "DESIGN-ledger")
async def test_new_numbers_act_on_who_runs_and_waits() -> None:
    accounting = CallAccounting()
    permits = accounting.concurrency_limit(("native", "plays"), 1, 2)
    await permits.admit(late())
    waiting = [asyncio.ensure_future(permits.admit(late())) for _ in range(2)]
    await turns(3)

    assert accounting.concurrency_limit(("native", "plays"), 2, 2) is permits
    await turns(3)
    assert [place.done() for place in waiting] == [True, False]
    assert accounting.concurrency_limit(("native", "plays"), 1, 0) is permits
    permits.on_end()
    await turns(3)
    assert not waiting[1].done()
    permits.on_end()
    assert await waiting[1] is None


@pytest.mark.requirement("C-3-limited", "C-3-limited-retry-after")
async def test_a_rate_admits_so_many_in_any_window() -> None:
    clock = ManualClock(100.0)
    rate = RateLimit(2, 60, "plays", clock=clock)

    assert await rate.admit(NEVER) is None
    clock.now = 130.0
    assert await rate.admit(NEVER) is None
    assert await rate.admit(NEVER) == Refusal("plays takes 2 calls in 60 s", 30.0)
    clock.now = 159.9
    assert await rate.admit(NEVER) is not None
    clock.now = 160.0
    assert await rate.admit(NEVER) is None
    assert await rate.admit(NEVER) == Refusal("plays takes 2 calls in 60 s", 30.0)


@pytest.mark.requirement("I2-3-state-survives", "DESIGN-ledger")
async def test_a_rate_keeps_its_window_under_new_numbers() -> None:
    clock = ManualClock(0.0)
    rate = RateLimit(3, 60, "plays", clock=clock)
    for clock.now in (0.0, 10.0, 20.0):
        await rate.admit(NEVER)
    rate.resize(1, 60)
    clock.now = 61.0
    assert await rate.admit(NEVER) == Refusal("plays takes 1 call in 60 s", 19.0)
    rate.resize(4, 60)
    assert [await rate.admit(NEVER) for _ in range(3)][:2] == [None, None]


@pytest.mark.requirement("C-3-limited")
async def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_try_after_its_time() -> None:
    clock = ManualClock(0.0)
    breaker = Breaker(3, 30.0, "plays", clock=clock)
    for status in ("panic", "timeout", "success", "panic", "tool_error", "panic", "timeout", "denied", "cancelled"):
        assert await breaker.admit(NEVER) is None
        breaker.on_answer(status)
    assert not breaker.open
    await breaker.admit(NEVER)
    breaker.on_answer("panic")
    assert breaker.open
    assert await breaker.admit(NEVER) == Refusal("its breaker is open after 3 failures of plays", 30.0)
    clock.now = 29.75
    assert await breaker.admit(NEVER) == Refusal("its breaker is open after 3 failures of plays", 0.25)
    clock.now = 30.0
    assert await breaker.admit(NEVER) is None
    assert await breaker.admit(NEVER) == Refusal("its breaker is open after 3 failures of plays", 1.0)
    breaker.on_answer("timeout")
    assert await breaker.admit(NEVER) == Refusal("its breaker is open after 4 failures of plays", 30.0)
    clock.now = 60.0
    assert await breaker.admit(NEVER) is None
    breaker.on_answer("success")
    assert [await breaker.admit(NEVER) for _ in range(3)] == [None, None, None]


@pytest.mark.requirement("C-3-limited")
async def test_an_answer_from_before_the_opening_does_not_let_a_second_call_try() -> None:
    clock = ManualClock(0.0)
    breaker = Breaker(1, 30.0, "plays", clock=clock)
    for _ in range(3):
        await breaker.admit(NEVER)
    breaker.on_answer("panic")
    clock.now = 31.0
    assert await breaker.admit(NEVER) is not None
    breaker.on_answer("cancelled")
    breaker.on_answer("cancelled")
    assert [await breaker.admit(NEVER) is None for _ in range(2)] == [True, False]


async def test_a_breaker_tells_the_log_that_it_opens_and_closes_but_not_each_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "toolplug.execution")
    clock = ManualClock(0.0)
    breaker = Breaker(2, 30.0, "plays", clock=clock)
    for status in ("timeout", "panic", "panic"):
        await breaker.admit(NEVER)
        breaker.on_answer(status)
        clock.now += 30.0
    for _ in range(2):
        await breaker.admit(NEVER)
        breaker.on_answer("success")
    assert caplog.messages == [
        "the breaker of plays is open for 30 s: 2 failures in a row",
        "the breaker of plays is closed again: a call was answered",
    ]


async def test_a_breaker_with_new_numbers_stays_open_for_its_time() -> None:
    clock = ManualClock(0.0)
    breaker = Breaker(1, 30.0, "plays", clock=clock)
    await breaker.admit(NEVER)
    breaker.on_answer("panic")
    breaker.resize(5, 10.0)

    assert await breaker.admit(NEVER) == Refusal("its breaker is open after 1 failure of plays", 30.0)


@pytest.mark.requirement("C-3-limited")
async def test_each_level_that_sets_a_counter_must_admit(harness: Harness) -> None:
    tool_level = harness.accounting.rate(("native", "plays", "tool"), 5, 60)
    source_level = harness.accounting.rate(("native", "plays"), 2, 60)

    async def tool(call: object, context: object) -> str:
        return "ran"

    results = [(await harness.call(tool, limiters=(tool_level, source_level))).status for _ in range(3)]

    assert [str(status) for status in results] == ["success", "success", "limited"]
