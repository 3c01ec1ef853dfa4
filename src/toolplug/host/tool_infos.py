"""The catalog of every tool, for people who configure: `GET /api/catalog` (docs/reference/discovery.md).

Nothing is started for it: tools of MCP servers are those that discovery found. The JSON of an unchanged source is
reused, so that ten thousand tools cost one look at each of their sources.

Which tools each configured caller can call: a service for plugins whose texts name tools.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.plan import Tool
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.plans import CALL_SCOPE, DEFAULT_POLICY
from toolplug.host.explain_gates import Verdict, equipped_gate, explain_unexposed, only_agents, plan_verdict
from toolplug.host.file.settings import MCP, HostSettings, split_source
from toolplug.host.file.tool_servers import Discovered, ToolServers
from toolplug.host.toolsets.sources import ToolsetSources
from toolplug.host.views import AgentReach, acting_agent, acts_as_nobody
from toolplug.part_protocols.host_part import AWAY, HostSession
from toolplug.providers.planning import KIND as NATIVE
from toolplug.providers.registry import FunctionRegistry
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.toolsets.agent_tools import AgentTools
from toolplug.toolsets.saved.equipped import EquippedToolsets, Stays
from toolplug.toolsets.saved.saved_toolset import SavedToolset, ToolsetOwner
from toolplug.toolsets.toolset import Toolset

_TYPES = frozenset({"native", "mcp", "session", "remote"})
_SECTIONS = 4_096
_PAGES = 64


class CatalogPage(NamedTuple):
    """`{"tools": […]}` as JSON, and its entity tag."""

    body: bytes
    etag: str


class _Section(NamedTuple):
    """The tools of one source, with `lead` before their names; `refusal` is why the caller cannot call any of them.

    `stale`: the source of a plugin is not connected, and these are what it listed last.
    """

    catalog: Catalog
    lead: str = ""
    toolset: str | None = None
    server: str | None = None
    record: Discovered | None = None
    refusal: str = ""
    offer: str | None = None
    stale: bool = False


class ToolInfos:
    """Writes the catalog pages of one host."""

    def __init__(
        self,
        registry: FunctionRegistry,
        toolsets: AgentTools,
        servers: ToolServers,
        sources: ToolsetSources,
        equipment: EquippedToolsets,
        stays: Stays,
        of_parts: Callable[[Principal], ToolExecutor],
    ) -> None:
        self._of_parts = of_parts
        self._sources = sources
        self._equipment = equipment
        self._stays = stays
        self._registry = registry
        self._toolsets = toolsets
        self._servers = servers
        self._written: LeastRecentlyUsed[tuple[object, ...], _Written] = LeastRecentlyUsed(_SECTIONS)
        self._pages: LeastRecentlyUsed[tuple[int, ...], tuple[tuple[bytes, ...], CatalogPage]] = LeastRecentlyUsed(
            _PAGES
        )

    def page(self, principal: Principal, agent: str | None, session: HostSession | None) -> CatalogPage:
        """Return the tools of providers, the session, parts and toolsets, servers with a prefix, then other servers.

        With an agent, or for a credential of one: those of its toolsets and of the session. Raises `AgentRequired`
        and `AgentNotAllowed`.
        """
        if acts_as_nobody(principal, agent):
            return self._join(())
        acting = acting_agent(principal, agent)
        if acting is None:
            sections = self._sections(principal, session)
        else:
            reach = AgentReach.of(self._toolsets, principal.tenant, (acting,))
            sections = self._of_agent(principal, reach, session)
        owner = ToolsetOwner(principal.tenant, principal.subject, None if session is None else session.code)
        rules = _CallerRules(principal, self._equipment.of(owner), self._stays)
        return self._join(tuple([text for section in sections if (text := self._text(section, rules))]))

    def _join(self, parts: tuple[bytes, ...]) -> CatalogPage:
        key = tuple(map(id, parts))
        kept = self._pages.get(key)
        if kept is None:
            body = b'{"tools":[%s]}' % b",".join(parts)
            # The parts are kept with their page: their ids are its key, and an id may be used again once its object is
            # gone.
            kept = (parts, CatalogPage(body, hashlib.sha256(body).hexdigest()[:32]))
            self._pages.put(key, kept)
        return kept[1]

    def _sections(self, principal: Principal, session: HostSession | None) -> Iterator[_Section]:
        yield _Section(self._registry.catalog.visible_to(principal))
        if session is not None:
            yield from _filter_seen(_Section(session.executor.catalog), principal)
        of_parts = self._of_parts(principal).catalog.visible_to(principal)
        if any(name in self._registry.catalog for name in of_parts):  # a provider's comes first
            of_parts = of_parts.where(lambda tool: tool.definition.name not in self._registry.catalog)
        yield _Section(of_parts)
        listed = self._servers.catalogs_of(principal.tenant)
        exposed: set[str] = set()
        for toolset in self._toolsets.toolsets.of(principal.tenant).values():
            section = self._of_toolset(toolset, principal, session, listed)
            exposed.update(() if section.server is None else (section.server,))
            yield from _filter_seen(
                section._replace(refusal=only_agents(self._toolsets, principal.tenant, toolset)), principal
            )
        for server in self._toolsets.toolsets.servers.values() if principal.agents is None else ():
            exposed.add(server.id)
            record = self._servers.record(principal.tenant, server.id)
            yield from _filter_seen(
                _Section(self._toolsets.part(server).catalog, "", None, server.id, record), principal
            )
        for server, catalog in listed.items():
            if server not in exposed:
                record = self._servers.record(principal.tenant, server)
                visible, refusal = catalog.visible_to(principal), explain_unexposed(server)
                yield _Section(visible, f"{server}/", None, server, record, refusal)

    def _of_agent(self, principal: Principal, reach: AgentReach, session: HostSession | None) -> Iterator[_Section]:
        listed = self._servers.catalogs_of(principal.tenant)
        for toolset in reach.toolsets:
            yield from _filter_seen(self._of_toolset(toolset, principal, session, listed), principal)
        if session is not None:
            yield from _filter_seen(_Section(session.executor.catalog), principal)

    def _of_toolset(
        self, toolset: Toolset, principal: Principal, session: HostSession | None, listed: Mapping[str, Catalog]
    ) -> _Section:
        kind, named = split_source(toolset.shown) or ("", "")
        server = named if kind == MCP else None
        record = None if server is None else self._servers.record(principal.tenant, server)
        opened = self._toolsets.session_catalog(toolset, None if session is None else session.code)
        if server is not None and opened is None:  # its prefixed catalog need not be built for names
            known = listed.get(server, EMPTY_CATALOG)
            return _Section(
                known, f"{toolset.prefix}.", toolset.id, server, record, offer=toolset.offered and toolset.offered.how
            )
        catalog = (opened or self._toolsets.part(toolset)).catalog
        problem = self._sources.problem(toolset.id)
        return _Section(catalog, "", toolset.id, server, record, problem or "", stale=problem is not None)

    def _text(self, section: _Section, rules: _CallerRules) -> bytes:
        """Return the JSON of the section's tools, separated by commas; the same object until something changes."""
        # By identity: a changed catalog or record is another object, and comparing ten thousand tools would cost what
        # this saves. The other fields are short.
        key = (id(section.catalog), id(section.record), *section[1:4], *section[5:], *rules.key)
        kept = self._written.get(key)
        if kept is None:
            # Without the brackets, so that the texts of sections can be joined.
            text = orjson.dumps(list(_infos(section, rules)))[1:-1]
            kept = (section, rules, text)
            self._written.put(key, kept)
        return kept[2]


def _filter_seen(section: _Section, principal: Principal) -> Iterator[_Section]:
    """Yield the tools that the principal may see, then the unavailable ones among them."""
    catalog = section.catalog.visible_to(principal)
    yield section._replace(catalog=catalog)
    if catalog.unavailable is not None:
        away = section._replace(catalog=catalog.unavailable)
        yield away if away.refusal else away._replace(refusal=AWAY)


class _CallerRules(NamedTuple):
    """What decides about a tool besides its source and its own rules: the caller, and what that has equipped."""

    principal: Principal
    equipped: SavedToolset | None
    stays: Stays

    @property
    def key(self) -> tuple[object, ...]:
        """What a page depends on, of a caller that sees the same tools."""
        return self.principal.has_scope(CALL_SCOPE), id(self.equipped)

    def verdict(self, name: str, tool: Tool, refusal: str) -> Verdict:
        """Return the verdict of `explain` on a tool of this name; `refusal` is that of its section."""
        if refusal and refusal != AWAY:
            return Verdict("refuses", refusal)
        if self.equipped is not None:
            gate = equipped_gate(self.equipped, self.stays, tool, name)
            if gate.verdict == "refuses":
                return Verdict("refuses", gate.detail)
        own = plan_verdict(tool.plan, self.principal)
        return Verdict("refuses", refusal) if refusal and own.callable else own


_Written = tuple[_Section, _CallerRules, bytes]
"""The JSON of a section, with what its key names by identity."""


def _infos(section: _Section, rules: _CallerRules) -> Iterator[dict[str, object]]:
    record = section.record
    home = {
        key: value for key, value in (("server", section.server), ("toolset", section.toolset)) if value is not None
    }
    for tool in section.catalog.values():
        definition, plan = tool
        if definition.hints.internal:
            continue
        name = section.lead + definition.name
        verdict = rules.verdict(name, tool, section.refusal)
        policy = next((setting.value for setting in plan.settings if setting.name == "policy"), DEFAULT_POLICY)
        kind, offered = definition.ref.kind, definition.offered
        how = offered.how if offered.of_tool or section.offer is None else section.offer
        yield {
            "name": name,
            "description": definition.description,
            "type": kind if kind in _TYPES else NATIVE,
            **home,
            "callable": verdict.callable,
            "verdict": verdict.answer,
            **({"reason": verdict.reason} if verdict.reason else {}),
            "configuredPolicy": policy,
            **({} if how == "always" else {"offer": how}),
            "discoveryStatus": None if record is None else record.status,
            "lastDiscovered": None if record is None else record.last_discovery,
            "stale": section.stale or (record is not None and record.stale),
        }


class CallableTools:
    """The tools of a host by caller. A provider gets it as `site.service(CallableTools)` once the host is open.

    ```python
    from collections.abc import Sequence

    from toolplug import CallableTools, FunctionProvider, ProviderContext

    class Guide(FunctionProvider):
        async def start(self, site: ProviderContext) -> None:
            self.site = site

        async def diagnose(self) -> Sequence[str]:
            callers = self.site.service(CallableTools).by_caller()
            return [f"{name} cannot send mail" for name, tools in callers.items() if not tools.get("send_mail")]
    ```
    """

    def __init__(
        self, settings: Callable[[], HostSettings], page: Callable[[Principal, str | None], CatalogPage]
    ) -> None:
        self._settings = settings
        self._page = page

    def by_caller(self) -> Mapping[str, Mapping[str, bool]]:
        """Return by caller whether it can call each tool that `GET /api/catalog` has for it; nothing is started.

        Callers are the API keys of the file by subject, as each agent that they name, and otherwise each agent of the
        file; a host without both has one, everybody. Bearers of tokens are known only as the agents that they act as.
        """
        # Keys of one tenant with the same scopes have the same page.
        pages: dict[tuple[object, ...], Mapping[str, bool]] = {}
        found: dict[str, Mapping[str, bool]] = {}
        for name, principal, agent in _find_callers(self._settings()):
            key = (principal.tenant, principal.scopes, principal.agents, agent)
            if key not in pages:
                pages[key] = _read_page(self._page(principal, agent))
            found[name] = pages[key]
        return found


def _read_page(page: CatalogPage) -> Mapping[str, bool]:
    tools: list[dict[str, Any]] = orjson.loads(page.body)["tools"]
    return {tool["name"]: tool["callable"] for tool in tools}


def _find_callers(settings: HostSettings) -> Iterator[tuple[str, Principal, str | None]]:
    """Yield the name of each caller for messages, its principal, and the agent that it acts as."""
    keys = () if settings.auth is None else settings.auth.api_keys
    named: set[str] = set()
    for key in keys:
        agents = None if key.agents is None else frozenset(key.agents)
        principal = Principal(key.subject, key.tenant, frozenset(key.scopes), agents)
        who = key.subject if key.tenant == Principal().tenant else f"{key.subject} of {key.tenant}"
        for agent in key.agents or ():
            named.add(agent)
            yield f"{who} as {agent}", principal, agent
        if agents is None:
            yield who, principal, None
    may_call = frozenset({CALL_SCOPE})
    for agent in settings.agents:
        if agent not in named:
            yield f"agent {agent}", Principal(scopes=may_call), agent
    if settings.auth is None and not settings.agents:
        yield "everybody", Principal(scopes=may_call), None
