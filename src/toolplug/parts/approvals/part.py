"""The part of a host in which a person decides on calls whose policy is `ask`; always on, without a section."""

from __future__ import annotations

from importlib import import_module

from toolplug.providers.host_part import HostPart, HostRoutes, PartServices, RunningPart

_HERE = "toolplug.parts.approvals"


async def _open(services: PartServices, settings: None) -> RunningPart[None]:
    return import_module(f"{_HERE}.running").RunningApprovals(services)


def _routes() -> HostRoutes:
    return import_module(f"{_HERE}.http").ROUTES


PART: HostPart[None] = HostPart(
    name="approvals",
    always=True,
    open=_open,
    routes=_routes,
    paths=("/v1/approvals",),
    commands={"approvals": f"{_HERE}.commands"},
)
