"""Every route of the host itself: those of its core, and those of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from toolplug.host.file.part_sections import built_in
from toolplug.http import approvals, catalog, pages, saved, tools, toolsets
from toolplug.http.auth import protected_resource
from toolplug.http.openapi import Description
from toolplug.http.providers import admin, tool_stream
from toolplug.http.routing import HostRoute, routes_in, routes_of
from toolplug.parts.sessions.http import calls, event_stream
from toolplug.parts.sessions.http import handlers as sessions
from toolplug.providers.host_part import HostPart

_BEFORE_PARTS = (pages, protected_resource, tools, tool_stream, admin)
_AFTER_PARTS = (approvals, sessions, event_stream, calls, toolsets, saved, catalog)

_OF_HOST = tuple(route for module in _BEFORE_PARTS for route in routes_in(module))
_OF_HOST_AFTER = tuple(route for module in _AFTER_PARTS for route in routes_in(module))


def described_routes(parts: Iterable[HostPart[Any]]) -> tuple[HostRoute, ...]:
    """Return every route but `/openapi.json`, in the order of the description; imports the handlers of the parts."""
    following: dict[str, list[HostRoute]] = {}
    for part in parts:
        place = _OF_HOST_AFTER[0].path
        for route in routes_of(part):
            place = part.before.get(route.path, place)
            following.setdefault(place, []).append(route)
    after = [each for route in _OF_HOST_AFTER for each in (*following.pop(route.path, ()), route)]
    return (*_OF_HOST, *after, *(route for routes in following.values() for route in routes))


def host_routes(parts: Callable[[], Iterable[HostPart[Any]]]) -> tuple[HostRoute, ...]:
    """Return the routes of the host but for those of its parts, which only the description asks for."""
    return (*_OF_HOST, *_OF_HOST_AFTER, Description(lambda: described_routes(parts())).route)


def all_routes() -> tuple[HostRoute, ...]:
    """Return every route of a host with no other part than those of toolplug, `/openapi.json` included."""
    return (*described_routes(built_in()), Description().route)
