"""FastMCP over HTTP, "HTTP Deployment": `http_app`, stateless and with JSON answers, which is its quickest setting."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastmcp import FastMCP
from starlette.types import ASGIApp


async def hello(name: str) -> str:
    """Say hello to somebody."""
    return f"Hello, {name}!"


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The server's application; it starts itself when it is served."""
    server = FastMCP("bench")
    server.tool(hello)
    yield server.http_app(stateless_http=True, json_response=True)
