"""Every tool that there is, for people who configure: `GET /api/catalog` (CONTRACT.md section 8).

Nothing is asked or started for it: providers and sessions are read as they are, MCP servers as discovery left them.
What has not changed is not written again, so that ten thousand tools cost a look at each of their sources.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.plan import Tool
from toolplug.discovery.record import DiscoveryRecord
from toolplug.execution.tool_rule import DEFAULT_POLICY
from toolplug.host.server_desk import ServerDesk
from toolplug.host.toolset_settings import MCP, split_source
from toolplug.providers.planning import KIND as NATIVE
from toolplug.providers.registry import FunctionRegistry
from toolplug.sessions.session import Session
from toolplug.toolsets.agent_tools import AgentTools

_TYPES = frozenset({"native", "mcp", "session", "remote"})
_SECTIONS = 4_096
_PAGES = 64


class CatalogPage(NamedTuple):
    """`{"tools": […]}` as JSON, and a text that is equal for equal pages."""

    body: bytes
    etag: str


class _Section(NamedTuple):
    """The tools of one source. `record` is what discovery knows of it, `away` that its tools cannot be called."""

    catalog: Catalog
    toolset: str | None = None
    server: str | None = None
    record: DiscoveryRecord | None = None
    away: bool = False


class ToolInfos:
    """Writes the pages of one host."""

    def __init__(self, registry: FunctionRegistry, toolsets: AgentTools, servers: ServerDesk) -> None:
        self._registry = registry
        self._toolsets = toolsets
        self._servers = servers
        self._written: OrderedDict[tuple[object, ...], tuple[_Section, bytes]] = OrderedDict()
        self._pages: OrderedDict[tuple[int, ...], tuple[tuple[bytes, ...], CatalogPage]] = OrderedDict()

    def page(self, principal: Principal, session: Session | None) -> CatalogPage:
        """The tools of providers, of the session, of toolsets, then of servers that are in no toolset."""
        parts = tuple([text for section in self._sections(principal, session) if (text := self._text(section))])
        key = tuple(map(id, parts))
        kept = self._pages.get(key)
        if kept is None:
            body = b'{"tools":[%s]}' % b",".join(parts)
            kept = self._pages[key] = (parts, CatalogPage(body, hashlib.sha256(body).hexdigest()[:32]))
            if len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(key)
        return kept[1]

    def _sections(self, principal: Principal, session: Session | None) -> Iterator[_Section]:
        yield _Section(self._registry.catalog.visible_to(principal))
        if session is not None:
            own = session.executor.catalog.visible_to(principal)
            yield _Section(own)
            if own.away is not None:
                yield _Section(own.away, away=True)
        code = None if session is None else session.code
        exposed: set[str] = set()
        for toolset in self._toolsets.toolsets.of(principal.tenant).values():
            kind, named = split_source(toolset.shown) or ("", "")
            server = named if kind == MCP else None
            catalog = self._toolsets.part(toolset, code).catalog.visible_to(principal)
            record = None if server is None else self._servers.record(principal.tenant, server)
            yield _Section(catalog, toolset.id, server, record)
            if catalog.away is not None:
                yield _Section(catalog.away, toolset.id, server, record, away=True)
            exposed.update(() if server is None else (server,))
        for server, catalog in self._servers.listed(principal.tenant).items():
            if server not in exposed:
                seen = catalog.visible_to(principal)
                yield _Section(seen, None, server, self._servers.record(principal.tenant, server), away=True)

    def _text(self, section: _Section) -> bytes:
        """The section's tools, separated by commas; the same object while nothing changed."""
        key = (id(section.catalog), section.toolset, section.server, id(section.record), section.away)
        kept = self._written.get(key)
        if kept is None:
            text = b",".join([orjson.dumps(info) for info in _infos(section)])
            kept = self._written[key] = (section, text)
            if len(self._written) > _SECTIONS:
                self._written.popitem(last=False)
        else:
            self._written.move_to_end(key)
        return kept[1]


def _infos(section: _Section) -> Iterator[dict[str, object]]:
    for tool in section.catalog.values():
        if not tool.definition.hints.internal:
            yield _info(tool, section)


def _info(tool: Tool, section: _Section) -> dict[str, object]:
    definition, record = tool.definition, section.record
    name, kind = definition.name, definition.ref.kind
    info: dict[str, object] = {
        "name": name if section.server is None or section.toolset is not None else f"{section.server}/{name}",
        "description": definition.description,
        "type": kind if kind in _TYPES else NATIVE,
    }
    if section.server is not None:
        info["server"] = section.server
    if section.toolset is not None:
        info["toolset"] = section.toolset
    policy = next((item.value for item in tool.plan.settings if item.knob == "policy"), DEFAULT_POLICY)
    info["callable"] = not section.away and policy != "deny"
    info["configuredPolicy"] = policy
    info["discoveryStatus"] = None if record is None else record.status
    info["lastDiscovered"] = None if record is None else record.last_discovery
    info["stale"] = record is not None and record.stale
    return info
