"""A host for sessions: SQLite as by default, limits so high that none of them acts, an API key."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.types import ASGIApp

from toolplug import Host, open_host
from toolplug.http import create_app

KEY = "only-for-benchmarks-7f0c1d52"


@asynccontextmanager
async def opened_host() -> AsyncGenerator[Host]:
    """The host, entered; its file is in a folder that is removed afterwards."""
    with TemporaryDirectory() as folder:
        host = open_host(
            {
                "providers": {"hello": {"enabled": True}},
                "auth": {"api_keys": [{"key": KEY, "subject": "alice", "tenant": "t1"}]},
                "store": f"sqlite:///{Path(folder) / 'state.db'}",
                "sessions": {
                    "grace": "1h",
                    "max_tools": 1000,
                    "max_updates_per_minute": 1_000_000,
                    "max_sessions": 20_000,
                },
            }
        )
        async with host:
            yield host


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """Its application, all of it: auth, tenants, metrics, limits."""
    async with opened_host() as host:
        yield create_app(host)
