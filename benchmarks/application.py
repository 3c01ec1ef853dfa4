"""Requests to an ASGI application without a server: a body in one message, as uvicorn hands over a short one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Application:
    """Calls an ASGI application, one request at a time, with these headers too."""

    def __init__(self, app: Any, headers: Mapping[str, str] = NO_HEADERS) -> None:
        self._app = app
        self._headers = headers

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a request; return status and body."""
        given = {"host": "localhost", "content-length": str(len(body)), "content-type": "application/json"}
        given |= {**self._headers, **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        status, chunks, sent = 0, b"", False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:  # the client stays, and has no more to say
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status, chunks
            status = message.get("status", status)
            chunks += message.get("body", b"")

        await self._app(scope, receive, send)
        return status, chunks
