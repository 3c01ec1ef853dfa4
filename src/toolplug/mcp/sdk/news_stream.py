"""The stream on which a server of the older era tells its news: asked for again, in time, whenever it is lost.

The SDK gives it up after two errors, however far apart, and does not know what it missed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from time import monotonic
from typing import cast

import httpx2
import orjson

from toolplug.mcp.restarts import Restarts

_CHANGED = b"data: " + orjson.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}) + b"\n\n"

Ask = Callable[[httpx2.Request], Awaitable[httpx2.Response]]
"""Gives an answer whose stream yields one message at a time; raises `httpx2.TransportError`."""


def is_for_news(request: httpx2.Request) -> bool:
    """Whether it asks for news, and not for the rest of an answer."""
    return request.method == "GET" and "last-event-id" not in request.headers


class NewsStream:
    """One stream after the other, ever more rarely where they do not last.

    After a gap the first message says that the tools have changed: that is all that can have been missed.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._restarts = Restarts()
        self._heard = False

    async def opened(self, request: httpx2.Request) -> httpx2.Response:
        """The answer of a server that can give one. Raises `httpx2.ConnectError` where it is not there."""
        while True:
            await asyncio.sleep(self._restarts.pause_s())
            try:
                response = await self._ask(request)
            except httpx2.ConnectError:
                raise
            except httpx2.TransportError:
                self._restarts.failed()
                continue
            if not _is_for_now(response.status_code):
                break
            await response.aclose()
            self._restarts.failed()
        missed, self._heard = self._heard, self._heard or response.status_code == HTTPStatus.OK
        messages = cast("httpx2.AsyncByteStream", response.stream)  # an asynchronous client's answers have these only
        news = _News(messages, self._restarts, missed=missed)
        return httpx2.Response(response.status_code, headers=response.headers, stream=news)


class _News(httpx2.AsyncByteStream):
    """One stream, which ends however it breaks off."""

    def __init__(self, messages: httpx2.AsyncByteStream, restarts: Restarts, *, missed: bool) -> None:
        self._messages = messages
        self._restarts = restarts
        self._missed = missed
        self._since = monotonic()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._missed:
            yield _CHANGED
        try:
            async for message in self._messages:
                yield _without_id(message)
        except httpx2.TransportError:
            return

    async def aclose(self) -> None:
        """Close the server's stream."""
        self._restarts.lasted(monotonic() - self._since)
        await self._messages.aclose()


def _is_for_now(status: int) -> bool:
    """Whether a refusal tells of the server's state, not of what it offers."""
    return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _without_id(message: bytes) -> bytes:
    """So that the SDK asks for a new stream after this one, and not for the rest of it."""
    return message.partition(b"\n")[2] if message.startswith(b"id:") else message
