"""The part of a host that finds the credentials of callers for the systems behind tools; always on."""

from __future__ import annotations

from importlib import import_module

from toolplug.providers.host_part import HostPart, PartServices, RunningPart

_HERE = "toolplug.parts.credentials"


async def _open(services: PartServices, settings: None) -> RunningPart[None]:
    return import_module(f"{_HERE}.running").RunningCredentials()


PART: HostPart[None] = HostPart(name="credentials", open=_open)
