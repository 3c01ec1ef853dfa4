"""An application at a scripted host, ready to be entered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel
from tests.client.scripted_host import WAIT_S, ScriptedHost, Stream

from toolplug.client import Application, Backoff

QUICK = Backoff(first_s=0.01, longest_s=0.05, gather_s=0.001)
"""A pace at which tests do not wait."""


class Row(BaseModel):
    name: str
    size: int = 1


def application(host: ScriptedHost, **options: Any) -> Application:
    return Application(host.url, **{"plugin_type": "table", "backoff": QUICK, **options})


def waiting(app: Application) -> tuple[asyncio.Event, asyncio.Event]:
    """Lends `wait`, which never ends by itself. Set once it has begun; once it was cancelled."""
    began, cancelled = asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    return began, cancelled


@asynccontextmanager
async def entered(app: Application, host: ScriptedHost) -> AsyncIterator[Stream]:
    """The application's first stream, while it is entered."""
    async with app:
        yield await host.stream()


async def waited(event: asyncio.Event) -> None:
    async with asyncio.timeout(WAIT_S):
        await event.wait()
