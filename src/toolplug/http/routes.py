"""Every route of the host itself: those of its core, and those of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from toolplug.host.file.part_sections import built_in
from toolplug.http import pages, saved, tools, toolsets
from toolplug.http.auth import protected_resource
from toolplug.http.openapi import Description
from toolplug.http.providers import admin, tool_stream
from toolplug.http.routing import HostRoute, routes_in, routes_of
from toolplug.parts.mcp.http import servers
from toolplug.parts.mcp.http.endpoint import MCP_ROUTES
from toolplug.providers.host_part import HostPart

_ORDER: tuple[ModuleType | str | tuple[HostRoute, ...], ...] = (
    pages,
    protected_resource,
    tools,
    tool_stream,
    admin,
    "responses",
    "approvals",
    "sessions",
    toolsets,
    MCP_ROUTES,
    saved,
    servers,
)
"""The host's own routes in the order of the description, and between them the names of parts; other parts come last."""


def described_routes(parts: Iterable[HostPart[Any]]) -> tuple[HostRoute, ...]:
    """Return every route but `/openapi.json`, in the order of the description; imports the handlers of the parts."""
    of_parts = {part.name: routes_of(part) for part in parts}
    described = [
        route for item in _ORDER for route in (of_parts.pop(item, ()) if isinstance(item, str) else _own(item))
    ]
    return (*described, *(route for routes in of_parts.values() for route in routes))


def _own(item: ModuleType | tuple[HostRoute, ...]) -> tuple[HostRoute, ...]:
    return item if isinstance(item, tuple) else routes_in(item)


def host_routes(parts: Callable[[], Iterable[HostPart[Any]]]) -> tuple[HostRoute, ...]:
    """Return the routes of the host but for those of its parts, which only the description asks for."""
    own = (route for item in _ORDER if not isinstance(item, str) for route in _own(item))
    return (*own, Description(lambda: described_routes(parts())).route)


def all_routes() -> tuple[HostRoute, ...]:
    """Return every route of a host with no other part than those of toolplug, `/openapi.json` included."""
    return (*described_routes(built_in()), Description().route)
