"""The server of `mcp_bare` on standard input and output: `python -m benchmarks.applications.mcp_pipes`."""

from __future__ import annotations

import asyncio

from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from benchmarks.applications.mcp_bare import call_tool, list_tools


async def serve() -> None:
    """Answer one client until it hangs up."""
    server = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(serve())
