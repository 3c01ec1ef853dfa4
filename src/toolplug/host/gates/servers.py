"""What stands before the tools of an MCP server beside their own gates: is it on, is it known, is it well."""

from __future__ import annotations

from collections.abc import Iterator

from toolplug.catalog.plan import Tool
from toolplug.discovery.record import DiscoveryRecord
from toolplug.host.gates.verdict import GateVerdict, verdict
from toolplug.host.servers.desk import ServerDesk
from toolplug.host.servers.view import ServerView

_DISCOVERY = "GET /api/mcp-servers/{id}"


def server_gates(desk: ServerDesk, tenant: str, tool: Tool) -> Iterator[GateVerdict]:
    """The state of the server that a tool is of, as discovery left it."""
    view = next((item for item in desk.servers(tenant) if item.id == tool.definition.ref.source), None)
    if view is not None:
        yield verdict("server", None, view.origin, f"MCP server {view.id!r} is on")
        yield verdict("discovery", _refusal(view.record, tool), _DISCOVERY.format(id=view.id), _state(view.record))


def where_a_server_has_it(desk: ServerDesk, tenant: str, name: str) -> Iterator[GateVerdict]:
    """Servers that have a tool of this name, which is theirs or `server/tool`, and why nobody can call it so."""
    server, slash, own = name.partition("/")
    for view in desk.servers(tenant):
        wanted = own if slash and server == view.id else name.rpartition(".")[2]
        found = next((tool for tool in view.record.tools if tool.name == wanted), None)
        if found is None:
            continue
        if not view.enabled:
            yield verdict("server", f"MCP server {view.id!r} has it, and is not enabled", view.origin, "")
        elif view.tools.get(wanted, view.policy) == "disable":
            yield verdict("policy", f"MCP server {view.id!r} has it, and its policy is disable", view.origin, "")
        elif found.quarantined:
            yield _quarantined(view, wanted)
        else:
            detail = f"MCP server {view.id!r} has it, and is called through a toolset that has from: mcp:{view.id}"
            yield verdict("toolset", detail, view.origin, "")


def _quarantined(view: ServerView, tool: str) -> GateVerdict:
    detail = f"MCP server {view.id!r} has changed its tool {tool!r}, and nobody has accepted that yet"
    return verdict("quarantine", detail, _DISCOVERY.format(id=view.id), "")


def _refusal(record: DiscoveryRecord, tool: Tool) -> str | None:
    name = tool.definition.ref.name
    if any(found.quarantined and found.name == name for found in record.tools):
        return "its definition has changed, and nobody has accepted that yet"
    return None


def _state(record: DiscoveryRecord) -> str:
    if record.stale:
        return f"its tools are the last good ones: {record.error or 'they are looked for again'}"
    return f"its tools are those of {record.last_discovery}" if record.last_discovery else record.status
