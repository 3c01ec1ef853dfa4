"""One request to an ASGI application, without a server and without an HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Scope

Headers = Sequence[tuple[bytes, bytes]]


class Answer(NamedTuple):
    """What came back; status 0: no answer began in time."""

    status: int
    body: bytes


async def requested(
    app: ASGIApp, method: str, path: str, *, headers: Headers = (), body: bytes = b"", within_s: float
) -> Answer:
    """The answer, or as much of it as came within so many seconds; then the request is cancelled."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body)), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    exchange = _Exchange(body)
    task = asyncio.create_task(_served(app, scope, exchange))
    await asyncio.wait({task}, timeout=within_s)
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=within_s)
    return Answer(exchange.status, b"".join(exchange.parts))


class _Exchange:
    """The request as the application receives it, and what it sends."""

    def __init__(self, body: bytes) -> None:
        self.status: int = 0
        self.parts: list[bytes] = []
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.parts.append(message.get("body", b""))


async def _served(app: ASGIApp, scope: Scope, exchange: _Exchange) -> None:
    try:
        await app(scope, exchange.receive, exchange.send)
    except Exception:  # noqa: BLE001  what a server would do: an application that raises has answered 500
        exchange.status = exchange.status or 500
