"""The routes of a host with no other part than those of toolplug."""

from __future__ import annotations

from toolplug.host.file.part_sections import built_in
from toolplug.http.openapi import Description
from toolplug.http.routes import described_routes
from toolplug.http.routing import HostRoute


def all_routes() -> tuple[HostRoute, ...]:
    """Every one of them, `/v1/openapi.json` included."""
    return (*described_routes(built_in()), Description().route)
