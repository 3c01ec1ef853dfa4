"""The MCP SDK's low-level server over Streamable HTTP, as its documentation has it: one tool, no validation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool
from starlette.types import ASGIApp

UNGUARDED = TransportSecuritySettings(enable_dns_rebinding_protection=False)
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    """One tool."""
    return ListToolsResult(tools=[Tool(name="hello", description="Say hello to somebody.", input_schema=SCHEMA)])


async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
    """Say hello."""
    name = (params.arguments or {})["name"]
    return CallToolResult(content=[TextContent(text=f"Hello, {name}!")])


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The server's application; it starts itself when it is served."""
    server = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    yield server.streamable_http_app(transport_security=UNGUARDED)
