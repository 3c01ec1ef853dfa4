"""How often a client opens an event stream that does not last, in a time that passes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from httpx2 import AsyncByteStream, AsyncClient, MockTransport, Request, Response
from tests.virtual_time import VirtualLoop

from toolplug.client import Backoff
from toolplug.client.events import EventStream
from toolplug.client.host_requests import HostRequests

HOUR_S = 3600.0
BACKOFF = Backoff()


class Lasting(AsyncByteStream):
    """One event, and then the end after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"event: heartbeat\ndata: {}\n\n"
        await asyncio.sleep(self._seconds)


async def opened_in_an_hour(lasts_s: float) -> int:
    count = 0

    def answer(_: Request) -> Response:
        nonlocal count
        count += 1
        return Response(200, headers={"Content-Type": "text/event-stream"}, stream=Lasting(lasts_s))

    async with AsyncClient(transport=MockTransport(answer)) as http:
        host = HostRequests(http, "http://host", None, BACKOFF.answer_s)
        events = EventStream[object](host, "/stream", {"heartbeat": bytes}, BACKOFF).events()
        async with aclosing(events):
            while asyncio.get_running_loop().time() < HOUR_S:
                await anext(events)
    return count


@pytest.mark.parametrize(("lasts_s", "least", "most"), [(0.0, 120, 400), (60.0, 58, 61)])
def test_a_stream_that_ends_as_soon_as_it_is_open_is_opened_later_and_later_and_no_other(
    lasts_s: float, least: int, most: int
) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert least <= runner.run(opened_in_an_hour(lasts_s)) <= most
