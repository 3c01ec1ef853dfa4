"""FastMCP over HTTP with 1,000 tools, stateless and with JSON answers, which is its quickest setting."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastmcp import FastMCP
from fastmcp.tools import Tool
from starlette.types import ASGIApp

TOOLS = 1_000


async def search(text: str) -> str:
    """Search the documents of a collection."""
    return text


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The server's application; it starts itself when it is served."""
    server = FastMCP("bench")
    for index in range(TOOLS):
        server.add_tool(Tool.from_function(search, name=f"tool_{index}"))
    yield server.http_app(stateless_http=True, json_response=True)
