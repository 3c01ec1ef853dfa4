"""A Litestar application that mounts a host below /tools, served on the port that is given."""

from __future__ import annotations

import sys

import uvicorn
from litestar import Litestar, asgi, get
from litestar.types import Receive, Scope, Send

from toolplug import open_host
from toolplug.http import create_app

host = open_host({"providers": {"hello": {"enabled": True}}, "store": "memory://"})
tools = create_app(host, prefix="/tools")


@asgi("/tools", is_mount=True)
async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what is below the prefix."""
    await tools(scope, receive, send)  # pyright: ignore[reportArgumentType]  their types of a scope are their own


@get("/own")
async def own() -> str:
    """Answer a route of the application."""
    return "own"


app = Litestar([mounted, own], lifespan=[host.lifespan])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
