"""A search engine that answers at once as SearXNG does: ten results, 6 KB of JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

ANSWER = json.dumps(
    {
        "query": "otters",
        "number_of_results": 0,
        "results": [
            {
                "url": f"https://site-{number}.example/otters",
                "title": f"All about otters, part {number}",
                "content": "Otters hold hands while they sleep, so that they do not drift apart. " * 4,
                "publishedDate": "2026-01-02T10:00:00",
                "engine": "index",
                "template": "default.html",
                "parsed_url": ["https", f"site-{number}.example", "/otters", "", "", ""],
                "engines": ["index"],
                "positions": [number],
                "score": 1.0 / number,
                "category": "general",
            }
            for number in range(1, 11)
        ],
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": [],
    }
).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request with the results."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": ANSWER})


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The application."""
    yield answer
