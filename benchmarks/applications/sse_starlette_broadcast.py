"""sse-starlette, "examples/02_broadcasting.py": a queue for each client, which the response's body iterates.

As there, but for Starlette's own JSON in place of FastAPI's, which costs less, and line feeds as line ends, as ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

Queues = set[asyncio.Queue[ServerSentEvent]]

MOST_WAITING = 100


class BroadcastStream:
    """The events of one client."""

    def __init__(self, request: Request, queues: Queues) -> None:
        self._request = request
        self._queues = queues
        self._queue: asyncio.Queue[ServerSentEvent] = asyncio.Queue(MOST_WAITING)

    def __aiter__(self) -> BroadcastStream:
        self._queues.add(self._queue)
        return self

    async def __anext__(self) -> ServerSentEvent:
        try:
            if await self._request.is_disconnected():
                raise StopAsyncIteration
            return await self._queue.get()
        except BaseException:
            self._queues.discard(self._queue)
            raise


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """`GET /events` reads, `POST /send` broadcasts."""
    queues: Queues = set()

    async def read(request: Request) -> EventSourceResponse:
        return EventSourceResponse(BroadcastStream(request, queues))

    async def send(request: Request) -> JSONResponse:
        sent = await request.json()
        event = ServerSentEvent(data=sent["message"], event=sent["event"], sep="\n")
        for queue in queues:
            queue.put_nowait(event)
        return JSONResponse({"status": "sent", "clients": len(queues)})

    yield Starlette(routes=[Route("/events", read), Route("/send", send, methods=["POST"])])
