"""A server over HTTP whose stream of news breaks off as often as its script says, while it goes on answering."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from tests.mcp.client.hostile_http import Message, event, refusal, result, sane

Era = Literal["2025-11-25", "2026-07-28"]
Fate = Literal["refused", "closed", "broken", "open"]

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class NewsServer:
    """The application. `fates` are what becomes of each stream of news in turn; what follows the last stays open.

    `streams` counts those that were asked for, `opened` is set when one stays open, and `news` is told on that one.
    """

    def __init__(self, era: Era, fates: Sequence[Fate]) -> None:
        self._era = era
        self._fates = list(fates)
        self.streams = 0
        self.opened = asyncio.Event()
        self.news = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        message: Message = json.loads(body) if request.method == "POST" else {}
        response = await self._response(request.method, message)
        await response(scope, receive, send)

    async def _response(self, method: str, message: Message) -> Response:
        if method == "DELETE" or (method == "POST" and "id" not in message):
            return Response(status_code=202)
        if method == "GET" or message["method"] == "subscriptions/listen":
            return self._stream(message)
        if message["method"] == "server/discover" and self._era == "2026-07-28":
            return JSONResponse(result(message, _discovered()))
        known = message["method"] in ("initialize", "tools/list", "tools/call")
        answer = _complete(sane(message)) if known else refusal(message, -32601, "no such method")
        headers = {"mcp-session-id": "one"} if message["method"] == "initialize" else None
        return JSONResponse(answer, headers=headers)

    def _stream(self, message: Message) -> Response:
        fate: Fate = self._fates[self.streams] if self.streams < len(self._fates) else "open"
        self.streams += 1
        if fate == "refused":
            return Response(status_code=503)
        return StreamingResponse(self._said(message, fate), media_type="text/event-stream")

    async def _said(self, message: Message, fate: Fate) -> AsyncIterator[bytes]:
        about = {"_meta": {_SUBSCRIPTION: message["id"]}} if message else {}
        if message:
            yield _told(
                "notifications/subscriptions/acknowledged", {**about, "notifications": {"toolsListChanged": True}}
            )
        else:
            yield b": welcome\n\n"
        if fate == "open":
            self.opened.set()
            await self.news.wait()
            yield _told("notifications/tools/list_changed", about)
            await asyncio.Event().wait()
        if fate == "broken":
            raise ConnectionResetError
        if message:
            yield event(result(message, {**about, "resultType": "complete"}))


def _told(method: str, params: Message) -> bytes:
    return event({"jsonrpc": "2.0", "method": method, "params": params})


def _discovered() -> Message:
    return {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "news", "version": "1"},
        "ttlMs": 0,
        "cacheScope": "private",
    }


def _complete(answer: Message) -> Message:
    value = answer["result"]
    return {**answer, "result": {**value, "resultType": "complete"}} if isinstance(value, dict) else answer
