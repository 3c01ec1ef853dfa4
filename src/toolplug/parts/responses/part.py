"""The part of a host that answers `/v1/responses` and `/v1/chat/completions`; off without the section `responses`."""

from __future__ import annotations

from importlib import import_module

from toolplug.part_protocols.host_part import HostPart, HostRoutes, PartServices, RunningPart
from toolplug.parts.responses.settings import ResponsesSettings

_HERE = "toolplug.parts.responses"


async def _open(services: PartServices, settings: ResponsesSettings) -> RunningPart[ResponsesSettings]:
    return await import_module(f"{_HERE}.running").open_responses(services, settings)


def _routes() -> HostRoutes:
    routes_in = import_module("toolplug.http.routing").routes_in
    modules = (import_module(f"{_HERE}.http.{name}") for name in ("create", "stored", "chat_completions"))
    return [route for module in modules for route in routes_in(module)]


PART: HostPart[ResponsesSettings] = HostPart(
    name="responses",
    settings=ResponsesSettings,
    open=_open,
    routes=_routes,
    paths=("/v1/responses", "/v1/chat", "/v1/models"),
    shared=("/v1/chat/completions", "/v1/models", "/v1/responses"),
    address="/v1/responses",
    commands={"chat": f"{_HERE}.commands.chat", "eval": f"{_HERE}.commands.eval"},
)
