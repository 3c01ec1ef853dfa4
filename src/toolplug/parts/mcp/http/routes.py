"""The routes of the part, in the order of the description."""

from __future__ import annotations

from toolplug.http.routing import routes_in
from toolplug.parts.mcp.http import servers
from toolplug.parts.mcp.http.endpoint import MCP_ROUTES

ROUTES = (*MCP_ROUTES, *routes_in(servers))
