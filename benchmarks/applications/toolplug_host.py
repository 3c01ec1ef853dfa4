"""A host with the tutorial's provider: its tool `hello` and its route `/v1/hello`, behind an API key."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from toolplug import open_host
from toolplug.http import create_app

KEY = "only-for-benchmarks-7f0c1d52"


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The host's application, all of it: auth, tenants, metrics, limits."""
    host = open_host(
        {
            "providers": {"hello": {"enabled": True}},
            "auth": {"api_keys": [{"key": KEY, "subject": "alice", "tenant": "t1"}]},
            "store": "memory://",
        }
    )
    async with host:
        yield create_app(host)
