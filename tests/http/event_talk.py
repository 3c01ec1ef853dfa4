"""An open event stream over ASGI: its events as they are sent, and a client that hangs up, or takes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message
from tests.http.conversation import HOST, Conversation


class Told(NamedTuple):
    """One event as its reader sees it."""

    id: int | None
    event: str
    data: dict[str, Any]


class EventTalk(Conversation):
    """A request whose answer is a stream. While `taking` is not set, the connection takes nothing."""

    def __init__(self, path: str, headers: Mapping[str, str], method: str = "GET") -> None:
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        super().__init__(method, path, headers=[*HOST, *raw])
        self.taking = asyncio.Event()
        self.taking.set()
        self.over = asyncio.Event()
        self._told: asyncio.Queue[Told] = asyncio.Queue()

    async def next(self) -> Told:
        """The next event."""
        return await self._told.get()

    async def until(self, name: str) -> Told:
        """The next event of this name; those before it are dropped."""
        while (told := await self.next()).event != name:
            pass
        return told

    async def rest(self) -> list[Told]:
        """What is told until the stream ends."""
        await self.over.wait()
        return [self._told.get_nowait() for _ in range(self._told.qsize())]

    async def _send(self, message: Message) -> None:
        await self.taking.wait()
        await super()._send(message)
        for block in message.get("body", b"").decode().split("\n\n")[:-1]:
            self._told.put_nowait(read(block))


def read(block: str) -> Told:
    """One event from its lines."""
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    return Told(int(fields["id"]) if "id" in fields else None, fields["event"], json.loads(fields["data"]))


@asynccontextmanager
async def talking(
    app: ASGIApp, path: str, headers: Mapping[str, str], last_event_id: object = None
) -> AsyncIterator[EventTalk]:
    """Open the stream; leaving hangs up and waits until the application has noticed."""
    given = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    talk = EventTalk(path, {**headers, **given})
    running = asyncio.create_task(_held(talk, app))
    try:
        yield talk
    finally:
        talk.hung_up.set()
        talk.taking.set()
        await running


async def _held(talk: EventTalk, app: ASGIApp) -> None:
    try:
        await talk.held_with(app)
    finally:
        talk.over.set()
