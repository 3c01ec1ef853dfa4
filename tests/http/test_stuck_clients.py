"""A client that takes nothing of its response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from starlette.responses import Response
from starlette.types import Message

from toolplug.http.event_stream import ServedEventStream

pytestmark = pytest.mark.anyio


def _stream(took: asyncio.Event, hang_up: Callable[[], None]) -> ServedEventStream:
    async def send(message: Message) -> None:
        await took.wait()

    return ServedEventStream(Response(), send, hang_up, stuck_s=0.01)


@pytest.mark.requirement("I6-bad-disconnect")
async def test_a_connection_that_takes_nothing_is_given_up() -> None:
    given_up, took = asyncio.Event(), asyncio.Event()

    def hang_up() -> None:
        given_up.set()
        took.set()

    async with asyncio.timeout(5):
        await _stream(took, hang_up).send(b"data: {}\n\n")
    assert given_up.is_set()


@pytest.mark.requirement("I6-bad-disconnect")
async def test_one_that_has_taken_everything_may_be_silent() -> None:
    given_up, took = asyncio.Event(), asyncio.Event()
    took.set()
    looked = asyncio.Event()
    await _stream(took, given_up.set).send(b"data: {}\n\n")
    asyncio.get_running_loop().call_later(0.05, looked.set)
    await looked.wait()
    assert not given_up.is_set()
