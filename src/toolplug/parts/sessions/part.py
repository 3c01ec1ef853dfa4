"""The part of a host in which applications elsewhere lend tools to a live session; on without a section, too."""

from __future__ import annotations

from importlib import import_module

from toolplug.part_protocols.host_part import HostPart, HostRoutes, PartServices, RunningPart, SectionFacts
from toolplug.parts.sessions.settings import SessionSettings

_HERE = "toolplug.parts.sessions"


async def _open(services: PartServices, settings: SessionSettings) -> RunningPart[SessionSettings]:
    return await import_module(f"{_HERE}.running").open_sessions(services, settings)


def _routes() -> HostRoutes:
    routes_in = import_module("toolplug.http.routing").routes_in
    modules = (import_module(f"{_HERE}.http.{name}") for name in ("handlers", "prompt", "event_stream"))
    return [route for module in modules for route in routes_in(module)]


def _facts(settings: SessionSettings) -> SectionFacts:
    named = settings.default_toolset
    return SectionFacts(
        toolsets={} if named is None else {"default_toolset": named},
        policies=(settings.policy,),
        results_ttl_s=settings.ttl,
    )


PART: HostPart[SessionSettings] = HostPart(
    name="sessions",
    settings=SessionSettings,
    always=True,
    facts=_facts,
    open=_open,
    routes=_routes,
    paths=("/api/sessions", "/api/session-types"),
    shared=("/api/sessions",),
    commands={"sessions": f"{_HERE}.commands.sessions"},
)
