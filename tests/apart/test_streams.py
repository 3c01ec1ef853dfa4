"""Bodies on the way to a process that does not read: bounded for all of them together, and none is lost or stuck."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apart.starting import until

from toolplug.apart.frames import PIECE_OF, Frame, Outgoing, Peer
from toolplug.apart.limits import CREDIT, PIECE, STREAMS_UNREAD
from toolplug.apart.values import Head
from toolplug.apart.workers.link import WorkerLink

pytestmark = [pytest.mark.anyio, pytest.mark.unit, pytest.mark.requirement("I36-apart")]

STREAMS = 64
BODY = b"x" * (CREDIT // 2)


class End(Peer):
    """An end that counts the bytes of each stream."""

    def __init__(self) -> None:
        super().__init__(CREDIT)
        self.arrived: Counter[int] = Counter()

    def on_frame(self, frame: Frame) -> None:
        assert frame.kind == PIECE_OF
        self.arrived[frame.head["id"]] += len(frame.body)

    async def answer(self, asked: str, head: Head, body: bytes) -> Any:
        raise NotImplementedError


@asynccontextmanager
async def connected(kind: str, reads: asyncio.Event) -> AsyncGenerator[tuple[End, End]]:
    """Two ends, of which the second reads when the event is set."""
    loop, near, far = asyncio.get_running_loop(), End(), End()
    if kind == "socket":
        ours, theirs = socket.socketpair()
        await loop.create_connection(lambda: near, sock=ours)
        await loop.create_connection(lambda: far, sock=theirs)
        far.transport.pause_reading()

        async def read_later() -> None:
            await reads.wait()
            far.transport.resume_reading()

        work = asyncio.create_task(read_later())
    else:

        async def take(message: Any) -> None:
            await reads.wait()
            if "bytes" in message:
                far.data_received(message["bytes"])

        link = WorkerLink(asyncio.Event().wait, take)
        near.connection_made(link)  # pyright: ignore[reportArgumentType]  as for the workers of a provider
        link.peer = near
        work = asyncio.create_task(link.run())
    try:
        yield near, far
    finally:
        near.fail("over")
        far.fail("over")
        work.cancel()
        await asyncio.wait([work])


@pytest.mark.parametrize("kind", ["socket", "websocket"])
async def test_many_streams_wait_together_and_each_arrives_whole(kind: str) -> None:
    reads = asyncio.Event()
    async with connected(kind, reads) as (near, far):
        writing = [asyncio.create_task(Outgoing(near, each).write(BODY, more=False)) for each in range(STREAMS)]
        await until(lambda: near.unread > STREAMS_UNREAD)
        await asyncio.sleep(0)
        assert near.unread < STREAMS_UNREAD + 2 * PIECE
        reads.set()
        await asyncio.gather(*writing)
        await until(lambda: [far.arrived[each] for each in range(STREAMS)] == [len(BODY)] * STREAMS)


async def test_a_stream_that_is_given_up_in_its_turn_passes_it_on() -> None:
    reads = asyncio.Event()
    reads.set()
    async with connected("socket", reads) as (near, far):
        near.pause_writing()
        first, second = [asyncio.create_task(Outgoing(near, each).write(b"x", more=False)) for each in range(2)]
        await asyncio.sleep(0)  # both wait
        near.resume_writing()
        first.cancel()
        await until(lambda: far.arrived[1] == 1)
        assert second.done()
        assert first.cancelled()


@pytest.mark.parametrize("kind", ["socket", "websocket"])
async def test_the_end_of_the_connection_ends_the_streams_that_wait(kind: str) -> None:
    async with connected(kind, asyncio.Event()) as (near, _):
        writing = [asyncio.create_task(Outgoing(near, each).write(BODY, more=False)) for each in range(STREAMS)]
        await until(lambda: near.unread > STREAMS_UNREAD)
        near.fail("ended")
        ends = await asyncio.gather(*writing, return_exceptions=True)
        assert isinstance(ends[-1], ConnectionResetError)
