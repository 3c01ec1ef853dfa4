"""The class of the rows of `apart` as a server of the MCP SDK over pipes."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

from benchmarks.providers import Trivial

server = MCPServer("bench")
server.tool(name="echo")(Trivial().echo)

if __name__ == "__main__":
    server.run()
