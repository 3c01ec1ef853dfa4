"""The part of a host that finds the credentials of callers for the systems behind tools; always on."""

from __future__ import annotations

from importlib import import_module

from toolplug.part_protocols.host_part import HostPart, HostRoutes, PartServices, RunningPart
from toolplug.parts.credentials.settings import CredentialSettings

_HERE = "toolplug.parts.credentials"


async def _open(services: PartServices, settings: CredentialSettings) -> RunningPart[CredentialSettings]:
    return await import_module(f"{_HERE}.running").RunningCredentials.open(services)


def _routes() -> HostRoutes:
    return import_module(f"{_HERE}.http").ROUTES


PART: HostPart[CredentialSettings] = HostPart(
    name="credentials",
    settings=CredentialSettings,
    always=True,
    open=_open,
    routes=_routes,
    paths=("/v1/connections", "/connect"),
    commands={"connections": f"{_HERE}.commands"},
)
