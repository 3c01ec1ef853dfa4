"""An open stream of the protocol over ASGI, of either era: its messages and comments as they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from httpx2 import AsyncClient
from starlette.types import ASGIApp, Message
from tests.http.conversation import HOST, Conversation
from tests.mcp.test_transport import introduced, modern

Said = dict[str, Any]
COMMENT: Said = {}
"""What says nothing, so that nobody takes the connection for dead."""


class StreamTalk(Conversation):
    """A request whose answer is a stream. While `taking` is not set, the connection takes nothing."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        super().__init__(method, path, headers=[*HOST, *raw], body=[body])
        self.taking = asyncio.Event()
        self.taking.set()
        self.over = asyncio.Event()
        self._said: asyncio.Queue[Said] = asyncio.Queue()

    async def next(self) -> Said:
        """The next message, or a comment."""
        return await self._said.get()

    async def rest(self) -> list[Said]:
        """What is said until the stream ends."""
        await self.over.wait()
        return [self._said.get_nowait() for _ in range(self._said.qsize())]

    async def _send(self, message: Message) -> None:
        await self.taking.wait()
        await super()._send(message)
        for block in message.get("body", b"").decode().split("\n\n")[:-1]:
            data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
            self._said.put_nowait(json.loads(data[0]) if data else COMMENT)


@asynccontextmanager
async def listening(
    app: ASGIApp, client: AsyncClient, era: str, key: Mapping[str, str], path: str = "/mcp"
) -> AsyncIterator[StreamTalk]:
    """Open the stream on which a client of this era hears of changes; it has begun when this is entered."""
    accepted = {**key, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    if era == "2025-11-25":
        client.headers.update(accepted)
        talk = StreamTalk("GET", path, {**accepted, **await introduced(client, path)})
    else:
        listen = modern("subscriptions/listen", notifications={"toolsListChanged": True})
        talk = StreamTalk("POST", path, {**accepted, **listen["headers"]}, json.dumps(listen["json"]).encode())
    running = asyncio.create_task(_held(talk, app))
    try:
        if era == "2025-11-25":
            while not talk.sent:
                await asyncio.sleep(0)
        else:
            assert (await talk.next())["method"] == "notifications/subscriptions/acknowledged"
        yield talk
    finally:
        talk.hung_up.set()
        talk.taking.set()
        await running


async def _held(talk: StreamTalk, app: ASGIApp) -> None:
    try:
        await talk.held_with(app)
    finally:
        talk.over.set()
