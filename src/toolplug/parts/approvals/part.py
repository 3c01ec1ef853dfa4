"""The part of a host in which a person decides on calls whose policy is `ask`; on without its section, too."""

from __future__ import annotations

from importlib import import_module

from toolplug.part_protocols.host_part import HostPart, HostRoutes, PartServices, RunningPart
from toolplug.parts.approvals.settings import ApprovalSettings

_HERE = "toolplug.parts.approvals"


async def _open(services: PartServices, settings: ApprovalSettings) -> RunningPart[ApprovalSettings]:
    return import_module(f"{_HERE}.running").RunningApprovals(services, settings)


def _routes() -> HostRoutes:
    return import_module(f"{_HERE}.http").ROUTES


PART: HostPart[ApprovalSettings] = HostPart(
    name="approvals",
    settings=ApprovalSettings,
    always=True,
    open=_open,
    routes=_routes,
    paths=("/v1/approvals", "/v1/grants"),
    commands={"approvals": f"{_HERE}.commands", "grants": f"{_HERE}.grant_commands"},
)
