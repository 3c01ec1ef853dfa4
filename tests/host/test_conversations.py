"""How long what was opened for a conversation stays open."""

from __future__ import annotations

import asyncio

import pytest

from toolplug import Principal
from toolplug.parts.responses import running as responses
from toolplug.parts.responses.running import Conversations

pytestmark = pytest.mark.anyio


ALICE, BOB = Principal("alice", "t1"), Principal("bob", "t2")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits, so that a test does not begin ten thousand conversations."""
    assert (responses.MOST, responses.MOST_OF_CALLER) == (10_000, 500)
    monkeypatch.setattr(responses, "MOST", 6)
    monkeypatch.setattr(responses, "MOST_OF_CALLER", 4)


@pytest.mark.requirement("C-7-session-conversation")
async def test_a_caller_with_too_many_conversations_loses_the_quietest_of_its_own() -> None:
    over: list[str] = []
    kept = Conversations(over.append)
    kept.use(BOB, "bob's")()
    for number in range(4):
        kept.use(ALICE, str(number))()
    kept.use(ALICE, "0")()
    assert over == []
    kept.use(ALICE, "one more")()
    assert over == ["1"]
    kept.stop()


@pytest.mark.requirement("C-7-session-conversation")
async def test_beyond_the_most_of_all_an_idle_conversation_is_over_before_a_busy_one() -> None:
    over: list[str] = []
    kept = Conversations(over.append)
    leave = kept.use(BOB, "busy")
    for number in range(5):
        kept.use(Principal(f"carol {number}", "t3"), str(number))()
    kept.use(ALICE, "one more")()
    assert over == ["0"]
    leave()
    kept.use(ALICE, "and one")()
    assert over == ["0", "1"]
    kept.stop()


@pytest.mark.requirement("C-7-session-conversation")
async def test_where_all_are_busy_the_one_that_began_first_is_over() -> None:
    over: list[str] = []
    kept = Conversations(over.append)
    leave = [kept.use(ALICE, str(number)) for number in range(5)]
    assert over == ["0"]
    for each in leave:
        each()
    kept.stop()


@pytest.mark.requirement("C-7-session-conversation")
async def test_a_conversation_with_a_response_in_progress_is_not_over_however_long_that_takes() -> None:
    loop, over = asyncio.get_running_loop(), list[str]()
    ended = asyncio.Event()

    def end(key: str) -> None:
        over.append(key)
        ended.set()

    kept = Conversations(end, idle_s=0.01)
    leave = kept.use(ALICE, "busy")
    kept.use(BOB, "idle")()
    async with asyncio.timeout(60):
        await ended.wait()
    assert over == ["idle"]
    ended.clear()
    loop.call_soon(leave)
    async with asyncio.timeout(60):
        await ended.wait()
    assert over == ["idle", "busy"]
    kept.stop()


@pytest.mark.requirement("C-7-session-conversation")
async def test_a_conversation_is_over_once_nothing_was_said_for_long() -> None:
    ended = asyncio.Event()
    over: list[str] = []

    def end(key: str) -> None:
        over.append(key)
        ended.set()

    kept = Conversations(end, idle_s=0.01)
    kept.use(ALICE, "quiet")()
    async with asyncio.timeout(60):
        await ended.wait()
    assert over == ["quiet"]
    kept.use(ALICE, "again")()
    kept.stop()
