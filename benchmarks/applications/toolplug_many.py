"""A host with a toolset of 1,000 tools for an agent, behind an API key."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from benchmarks.applications.toolplug_host import KEY
from benchmarks.providers import ECHO_SCHEMA, Many
from toolplug import FunctionRegistry, open_host
from toolplug.http import create_app

TOOLS = 1_000
AGENT = "bench"


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The host's application, all of it: auth, tenants, metrics, limits."""
    host = open_host(
        {
            "providers": {},
            "agents": {AGENT: {"toolsets": ["many"]}},
            "auth": {"api_keys": [{"key": KEY, "subject": "alice", "tenant": "t1"}]},
            "store": "memory://",
        }
    )
    async with FunctionRegistry({"many": Many(TOOLS, schema=ECHO_SCHEMA)}) as registry:
        host.register_toolset("many", "many", registry)
        async with host:
            yield create_app(host)
