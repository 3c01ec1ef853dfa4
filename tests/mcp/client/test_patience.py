"""How long an answer is waited for that nobody wants any more."""

from __future__ import annotations

import asyncio

import pytest

from toolplug.parts.mcp.sdk.fault_isolation import CancelGrace

pytestmark = pytest.mark.anyio


async def waited(patience: CancelGrace, answer: asyncio.Event) -> str:
    try:
        async with patience.waiting():
            await answer.wait()
    except TimeoutError:
        return "given up"
    return "answered"


async def test_an_answer_is_waited_for_until_it_comes() -> None:
    answer = asyncio.Event()
    waiting = asyncio.create_task(waited(CancelGrace(0.0), answer))
    await asyncio.sleep(0)
    answer.set()
    assert await waiting == "answered"


async def test_an_answer_that_nobody_wants_is_given_up() -> None:
    patience = CancelGrace(0.0)
    waiting = asyncio.create_task(waited(patience, asyncio.Event()))
    await asyncio.sleep(0)
    patience.end_soon()
    assert await waiting == "given up"


async def test_the_next_part_of_an_answer_that_nobody_wants_is_not_waited_for() -> None:
    patience = CancelGrace(0.0)
    patience.end_soon()
    assert await waited(patience, asyncio.Event()) == "given up"
