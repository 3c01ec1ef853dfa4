"""An MCP server over standard input and output, for agents whose own functions are those of such servers."""

from __future__ import annotations

from job_loop import CITY
from mcp.server.mcpserver import MCPServer

server = MCPServer("places")


@server.tool(name=CITY["name"], description=CITY["description"], structured_output=False)
def city() -> str:
    return "Cork"


server.run()
