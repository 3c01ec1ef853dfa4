"""Work that nobody waits for: it costs nobody anything, and closing waits for what must not be broken."""

from __future__ import annotations

import asyncio

import pytest
from tests.sessions.fixtures import turns

from toolplug.errors import StoreUnavailable
from toolplug.parts.sessions.shared import SessionTasks

pytestmark = pytest.mark.anyio


async def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [StoreUnavailable("down"), LookupError("a bug")])
async def test_what_work_raises_is_logged_once_and_costs_no_other(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    background, goes_on = SessionTasks(), asyncio.Event()

    async def good() -> None:
        goes_on.set()

    background.start(_raise(error), "bad")
    background.start(good(), "good")
    await goes_on.wait()
    await background.aclose()
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_work_that_is_closed_before_its_first_step_leaves_no_warning() -> None:
    background = SessionTasks()
    background.start(_raise(LookupError("never begun")), "late")
    await background.aclose()


async def test_unbroken_work_goes_on_when_its_caller_leaves_and_closing_waits_for_it() -> None:
    background, may_end, ended = SessionTasks(), asyncio.Event(), False

    async def work() -> int:
        nonlocal ended
        await may_end.wait()
        ended = True
        return 7

    leaving = asyncio.create_task(background.unbroken(work(), "leaving"))
    staying = asyncio.create_task(background.unbroken(work(), "staying"))
    await turns()
    leaving.cancel()
    closing = asyncio.create_task(background.aclose())
    await turns()
    assert leaving.cancelled()
    assert not closing.done()
    may_end.set()
    await closing
    assert ended
    assert await staying == 7


async def test_unbroken_work_raises_what_it_raises() -> None:
    with pytest.raises(LookupError):
        await SessionTasks().unbroken(_raise(LookupError("told")), "raising")
