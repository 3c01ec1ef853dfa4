"""The host of `toolplug_host`, with a console."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from benchmarks.applications.toolplug_host import KEY
from toolplug import open_host
from toolplug.http import create_app


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The host's application."""
    host = open_host(
        {
            "providers": {"hello": {"enabled": True}, "console": {"enabled": True, "public_routes": True}},
            "auth": {"api_keys": [{"key": KEY, "subject": "alice", "tenant": "t1"}]},
            "store": "memory://",
        }
    )
    async with host:
        yield create_app(host)
