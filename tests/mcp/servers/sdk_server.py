"""A server made with the SDK, started as a script: `stdio`, or `http`, which writes its port as its only line."""

from __future__ import annotations

import os
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ImageContent, TextContent, ToolAnnotations

server = MCPServer("real")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool()
def pid() -> str:
    """Say which process this is."""
    return str(os.getpid())


@server.tool()
def broken() -> str:
    """Fail."""
    raise ToolError("it is broken")


@server.tool(structured_output=False)
def picture() -> list[TextContent | ImageContent]:
    """Show something."""
    return [TextContent(text="a dot"), ImageContent(data="AA==", mime_type="image/png")]


@server.tool()
async def slow(context: Context) -> str:
    """Report progress on the way."""
    await context.report_progress(1, 2, "half")
    return "done"


@server.tool()
async def grow(context: Context) -> str:
    """Have one tool more from now on."""
    server.add_tool(pid, name="grown")
    await context.notify_tools_changed()
    return "grown"


@server.tool()
def crash() -> str:
    """End the process."""
    os._exit(3)


def serve_http() -> None:
    """Serve on a free port of this machine."""
    unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        app = server.streamable_http_app(transport_security=unguarded)
        uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    serve_http() if sys.argv[1] == "http" else server.run("stdio")
