"""How long what was opened for a conversation stays open."""

from __future__ import annotations

import asyncio

import pytest

from toolplug.host.responses import MOST, Conversations

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("C-7-session-conversation")
async def test_beyond_the_most_the_quietest_conversation_is_over() -> None:
    over: list[str] = []
    kept = Conversations(over.append)
    for number in range(MOST):
        kept.use(str(number))
    kept.use("0")
    assert over == []
    kept.use("one more")
    assert over == ["1"]
    kept.stop()


@pytest.mark.requirement("C-7-session-conversation")
async def test_a_conversation_is_over_once_nothing_was_said_for_long() -> None:
    ended = asyncio.Event()
    over: list[str] = []

    def end(key: str) -> None:
        over.append(key)
        ended.set()

    kept = Conversations(end, idle_s=0.01)
    kept.use("quiet")
    async with asyncio.timeout(60):
        await ended.wait()
    assert over == ["quiet"]
    kept.use("again")
    kept.stop()
