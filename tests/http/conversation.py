"""One ASGI request by hand: for what no client library sends, and to hang up in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message

Headers = Sequence[tuple[bytes, bytes]]
HOST: Headers = [(b"host", b"localhost")]


class Conversation:
    """What an application and a client say to each other. `sent` holds the application's messages."""

    def __init__(
        self,
        method: str = "GET",
        path: str = "/",
        *,
        headers: Headers = HOST,
        body: Sequence[bytes] = (b"",),
        query: bytes = b"",
        peer: tuple[str, int] | None = ("127.0.0.1", 4711),
        server: tuple[str, int | None] | None = ("127.0.0.1", 8080),
    ) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query,
            "headers": list(headers),
            "client": peer,
            "server": server,
        }
        self.sent: list[Message] = []
        self.taken = 0
        self.hung_up = asyncio.Event()
        self._body = list(body)

    async def held_with(self, app: ASGIApp) -> Conversation:
        """Let the application answer."""
        await app(self.scope, self._receive, self._send)
        return self

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    def header(self, name: bytes) -> bytes | None:
        return dict(self.sent[0]["headers"]).get(name)

    async def _receive(self) -> Message:
        if self._body:
            self.taken += 1
            chunk = self._body.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(self._body)}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
