"""The edge of `toolplug serve`: what its limits cost a request, and what heads that never end cost the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from socket import create_connection, socket

from benchmarks.connection import request
from benchmarks.frame import MEBIBYTES, Batch, Row
from benchmarks.serve import hosted
from benchmarks.server import requested

HEADS = 1000
PIECE = b"x" * 3000
ROUNDS = 20
"""Pieces for each head: more than it may have."""

_BEGIN = b"GET /v1/tools HTTP/1.1\r\nHost: localhost\r\nX-Endless: "


@asynccontextmanager
async def at_rest() -> AsyncGenerator[Batch]:
    """The memory of a server that nobody has called."""
    with hosted() as served:

        async def batch(n: int) -> float:
            return float(served.resident() * n)

        yield batch


@asynccontextmanager
async def flooded() -> AsyncGenerator[Batch]:
    """The most memory of a server while one peer sends heads that never end, all of them at once."""
    with hosted() as served:

        async def batch(n: int) -> float:
            most = 0
            for _ in range(n):
                with ExitStack() as opened:
                    peers = [opened.enter_context(create_connection(("127.0.0.1", served.port))) for _ in range(HEADS)]
                    _send(peers, _BEGIN)
                    for _ in range(ROUNDS):
                        _send(peers, PIECE)
                        await asyncio.sleep(0.05)
                        most = max(most, served.resident())
            return float(most * n)

        yield batch


def _send(peers: list[socket], data: bytes) -> None:
    for peer in peers:
        with suppress(OSError):  # it was refused
            peer.sendall(data)


_message = request("GET", "/v1/hello")

ROWS = (
    Row(
        name="a request behind the edge",
        ours=partial(requested, "starlette_bare", _message, "edge"),
        other=partial(requested, "starlette_bare", _message),
        against="uvicorn alone",
        hold=1.1,
        aim=1.05,
        pairs=21,
        batch_s=0.2,
    ),
    Row(
        name="memory under 1,000 heads that never end, from one peer",
        ours=flooded,
        other=at_rest,
        against="at rest",
        unit=MEBIBYTES,
        hold=1.5,
        aim=1.2,
        pairs=3,
    ),
)
