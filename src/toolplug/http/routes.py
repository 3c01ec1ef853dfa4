"""Every route of the host itself."""

from __future__ import annotations

from toolplug.http import approvals, pages, saved, servers, tools, toolsets
from toolplug.http.auth import protected_resource
from toolplug.http.mcp.endpoint import MCP_ROUTES
from toolplug.http.openapi import Description
from toolplug.http.providers import admin, tool_stream
from toolplug.http.responses import create, stored
from toolplug.http.routing import HostRoute, routes_in
from toolplug.http.sessions import calls, event_stream
from toolplug.http.sessions import handlers as sessions

_BEFORE_MCP = (
    pages,
    protected_resource,
    tools,
    tool_stream,
    admin,
    create,
    stored,
    approvals,
    sessions,
    event_stream,
    calls,
    toolsets,
)

ROUTES = (
    *(route for module in _BEFORE_MCP for route in routes_in(module)),
    *MCP_ROUTES,
    *routes_in(saved),
    *routes_in(servers),
)


def all_routes() -> tuple[HostRoute, ...]:
    """Return every route of the host, `/openapi.json` included."""
    return (*ROUTES, Description(ROUTES).route)
