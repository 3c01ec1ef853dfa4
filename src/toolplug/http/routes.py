"""Every route of the host itself: those of its core, and those of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from toolplug.http import catalog, pages, tool_operations, tools, toolsets
from toolplug.http.auth import protected_resource
from toolplug.http.openapi import Description
from toolplug.http.providers import admin, tool_stream
from toolplug.http.routing import HostRoute, routes_in, routes_of
from toolplug.http.tool_operations import ToolDocuments
from toolplug.part_protocols.host_part import HostPart

_ORDER: tuple[ModuleType | str, ...] = (
    pages,
    protected_resource,
    tools,
    tool_operations,
    tool_stream,
    admin,
    "responses",
    "approvals",
    "sessions",
    toolsets,
    "mcp",
    "/api/mcp-servers",
    catalog,
)
"""The host's own routes in the order of the description, and between them the names of parts; other parts come last.

A path is that of the first of a part's routes that are elsewhere than the others.
"""


def described_routes(parts: Iterable[HostPart[Any]]) -> tuple[HostRoute, ...]:
    """Return every route but `/v1/openapi.json`, in the order of the description; imports the handlers of the parts."""
    of_parts: dict[str, list[HostRoute]] = {}
    for part in parts:
        place = part.name
        for route in routes_of(part):
            place = route.path if route.path in _ORDER else place
            of_parts.setdefault(place, []).append(route)
    described: list[HostRoute] = []
    for item in _ORDER:
        described += of_parts.pop(item, ()) if isinstance(item, str) else routes_in(item)
        if item is tools:
            described += ToolDocuments().routes
    return (*described, *(route for routes in of_parts.values() for route in routes))


def host_routes(parts: Callable[[], Iterable[HostPart[Any]]]) -> tuple[HostRoute, ...]:
    """Return the routes of the host but for those of its parts, which only the description asks for."""
    own = (route for item in _ORDER if not isinstance(item, str) for route in routes_in(item))
    # A tool of this name has the same path as the stream of tools.
    named_stream = tool_operations.call_operation._replace(path=tool_stream.stream_tools.path)
    return (*own, named_stream, *ToolDocuments().routes, Description(lambda: described_routes(parts())).route)
