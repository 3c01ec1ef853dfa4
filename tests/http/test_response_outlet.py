"""A client that takes nothing of its response."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from toolplug.http.exchange import Exchange
from toolplug.http.responses.create import Outlet

pytestmark = pytest.mark.anyio


def _exchange(took: asyncio.Event) -> Exchange:
    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        await took.wait()

    return Exchange({"type": "http", "method": "POST", "path": "/v1/responses", "headers": []}, receive, send)


@pytest.mark.requirement("I6-bad-disconnect")
async def test_a_connection_that_takes_nothing_is_given_up() -> None:
    given_up, took = asyncio.Event(), asyncio.Event()

    def hang_up() -> None:
        given_up.set()
        took.set()

    async with asyncio.timeout(5):
        with Outlet(_exchange(took), hang_up, stuck_s=0.01) as outlet:
            await outlet.send(b"data: {}\n\n")
    assert given_up.is_set()


@pytest.mark.requirement("I6-bad-disconnect")
async def test_one_that_has_taken_everything_may_be_silent() -> None:
    given_up, took = asyncio.Event(), asyncio.Event()
    took.set()
    looked = asyncio.Event()
    with Outlet(_exchange(took), given_up.set, stuck_s=0.01) as outlet:
        await outlet.send(b"data: {}\n\n")
        asyncio.get_running_loop().call_later(0.05, looked.set)
        await looked.wait()
    assert not given_up.is_set()
