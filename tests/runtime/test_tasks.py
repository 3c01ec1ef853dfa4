"""Background tasks are held, waited for and cancelled together; an owned task opens and closes one thing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from toolplug.runtime.tasks import BackgroundTasks, OpeningFailed, OwnedTask, in_slices

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_waiting_raises_the_error_of_a_task() -> None:
    async def fails() -> None:
        raise LookupError("no such thing")

    tasks = BackgroundTasks()
    tasks.start(fails(), "fails")

    with pytest.raises(LookupError, match="no such thing"):
        await tasks.wait()
    assert len(tasks) == 0


async def test_cancelled_tasks_have_ended_when_the_cancellation_returns() -> None:
    ended: list[str] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    tasks = BackgroundTasks()
    tasks.start(hangs(), "hangs")
    await asyncio.sleep(0)
    await tasks.cancel()

    assert ended == ["cleaned up"]
    await tasks.cancel()


async def test_another_task_has_a_turn_between_slices() -> None:
    turns: list[str] = []

    async def neighbour() -> None:
        turns.append("neighbour")

    running = asyncio.create_task(neighbour())
    async for item in in_slices("ab", slice_s=-1):
        turns.append(item)
    await running

    assert turns == ["a", "neighbour", "b"]


Step = Callable[[], Awaitable[object]]


async def done() -> None:
    """End at once."""


async def forever() -> None:
    await asyncio.Event().wait()


class Opener:
    """A life that notes what happens to it; `opens` and `closes` may wait or raise."""

    def __init__(self, opens: Step = done, closes: Step = done) -> None:
        self.seen: list[str] = []
        self.ended: list[str] = []
        self._opens = opens
        self._closes = closes

    async def life(self, owned: OwnedTask[str]) -> None:
        try:
            await self._opens()
            owned.hand_out("value")
            self.seen.append("open")
            await owned.ended.wait()
        finally:
            self.seen.append("closing")
            await self._closes()

    def start(self) -> OwnedTask[str]:
        return OwnedTask(self.life, name="test", on_end=lambda _, error: self.ended.append(repr(error)))


async def test_what_is_opened_is_handed_to_all_and_closed_by_the_same_task() -> None:
    tasks: list[asyncio.Task[object] | None] = []

    async def note() -> None:
        tasks.append(asyncio.current_task())

    opener = Opener(note, note)
    owned = opener.start()
    assert await asyncio.gather(owned.wait_open(), owned.wait_open()) == ["value", "value"]
    assert await owned.end(5)
    assert (opener.seen, opener.ended, owned.ended.is_set()) == (["open", "closing"], ["None"], True)
    assert tasks[0] is tasks[1] is not asyncio.current_task()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
async def test_a_failure_to_open_is_the_cause_that_waiters_get(error: BaseException) -> None:
    async def fails() -> None:
        raise error

    opener = Opener(fails)
    owned = opener.start()
    with pytest.raises(OpeningFailed) as caught:
        await owned.wait_open()
    assert caught.value.__cause__ is error
    assert opener.ended == [repr(error)]
    assert await owned.end(5)


async def test_a_failure_to_close_is_told_once_and_reaches_nobody_else() -> None:
    async def fails() -> None:
        raise ValueError("no")

    opener = Opener(closes=fails)
    owned = opener.start()
    await owned.wait_open()
    assert await owned.end(5)
    assert opener.ended == ["ValueError('no')"]


async def test_one_that_is_still_opening_is_cancelled_and_its_waiters_hear_at_once() -> None:
    opener = Opener(opens=forever)
    owned = opener.start()
    waiting = asyncio.ensure_future(owned.wait_open())
    await asyncio.sleep(0)
    assert await owned.end(5)
    with pytest.raises(OpeningFailed):
        await waiting
    assert (opener.seen, opener.ended) == (["closing"], ["None"])


async def test_one_that_does_not_close_in_time_is_cancelled() -> None:
    opener = Opener(closes=forever)
    owned = opener.start()
    await owned.wait_open()
    assert not await owned.end(0.01)
    assert await owned.end(5)


async def test_a_cancelled_caller_waits_for_the_end_all_the_same() -> None:
    closing = asyncio.Event()
    opener = Opener(closes=lambda: asyncio.sleep(0.01))
    owned = opener.start()
    await owned.wait_open()

    async def ends() -> None:
        closing.set()
        await owned.end(5)

    ending = asyncio.ensure_future(ends())
    await closing.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert opener.ended == ["None"]


async def test_a_waiter_that_is_cancelled_leaves_the_opening_to_the_others() -> None:
    go = asyncio.Event()

    async def waits() -> None:
        await go.wait()

    owned = Opener(waits).start()
    gone, stays = asyncio.ensure_future(owned.wait_open()), asyncio.ensure_future(owned.wait_open())
    await asyncio.sleep(0)
    gone.cancel()
    go.set()
    assert await stays == "value"
    assert await owned.end(5)
