"""The part of a host that speaks Model Context Protocol: with clients of `/mcp`, and with servers of `mcp_servers`.

It has no settings of its own: clients are always served, and servers can be added over HTTP. So it is always open, and
imports what it needs with the first server and the first client.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path

from toolplug.config.document import Document
from toolplug.host.file.tool_servers import (
    NO_ENTRIES,
    SECTION,
    EntrySchema,
    ServerEntries,
    ServerKind,
    ServerServices,
    ToolServers,
)
from toolplug.part_protocols.host_part import HostPart, HostRoutes, PartServices, RunningPart

_HERE = "toolplug.parts.mcp"


async def _open(services: PartServices, settings: None) -> RunningPart[None]:
    return import_module(f"{_HERE}.running").McpClients(services)


def _routes() -> HostRoutes:
    servers = import_module(f"{_HERE}.http.servers")
    routes_in = import_module("toolplug.http.routing").routes_in
    return (*import_module(f"{_HERE}.http.endpoint").MCP_ROUTES, *routes_in(servers))


def _read(document: Document, user: Path | None, environ: Mapping[str, str], taken: Mapping[str, str]) -> ServerEntries:
    if SECTION not in document.root.entries and (user is None or not user.is_file()):
        return NO_ENTRIES
    return import_module(f"{_HERE}.settings").ServerEntries.read(document, user, environ, taken)


def _schema() -> EntrySchema:
    return import_module(f"{_HERE}.settings").entry_schema()


def _open_servers(services: ServerServices) -> AbstractAsyncContextManager[ToolServers]:
    return import_module(f"{_HERE}.running").HostServers(services)


PART: HostPart[None] = HostPart(
    name="mcp",
    open=_open,
    routes=_routes,
    paths=("/mcp", "/api/sessions", "/api/mcp-servers"),
    shared=("/mcp",),
    commands={name: f"{_HERE}.commands.{name}" for name in ("discover", "connect")},
    servers=lambda: ServerKind(_read, _schema, _open_servers),
    stdio=f"{_HERE}.commands.over_stdio",
)
