"""FastMCP over HTTP, "HTTP Deployment": `http_app`, stateless and with JSON answers, which is its quickest setting."""

from __future__ import annotations

from fastmcp import FastMCP

from benchmarks.tools import echo

server = FastMCP("bench")
server.tool(echo)
app = server.http_app(stateless_http=True, json_response=True)
