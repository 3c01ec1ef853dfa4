"""What an entered host has and answers: its parts, the tools of each caller, and why a call passes or not."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from toolplug import library_types
from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.offering import Offering
from toolplug.errors import Problem
from toolplug.execution.executor import ModelTools, open_catalog
from toolplug.execution.plans import NO_RULE, ToolRule
from toolplug.host.explain import Explainer, Explanation
from toolplug.host.file.packages import only_installed
from toolplug.host.file.settings import HostSettings
from toolplug.host.file.tool_servers import SERVER_KIND, ToolServers
from toolplug.host.file.user_auth_entries import list_user_auth
from toolplug.host.keys import DecisionKey
from toolplug.host.opening.parts import Parts
from toolplug.host.operations import Operations
from toolplug.host.quotas.quota_use import QuotaUse
from toolplug.host.tool_infos import CatalogPage
from toolplug.host.toolsets.service import ToolsetService
from toolplug.host.views import AgentReach, reach_of
from toolplug.part_protocols.host_part import HostPart
from toolplug.providers.entry import ProviderRecord
from toolplug.providers.registry import FunctionRegistry
from toolplug.stores.store import Store
from toolplug.toolsets.saved.service import SavedToolsets

P = TypeVar("P")

_REFUSING = ("deny", "disable")
"""The policies of tools that nobody calls."""


class EnteredHost:
    """What `Host` has while it is entered. Every other use raises `RuntimeError`, but `entered` and `plugins`."""

    def __init__(self) -> None:
        self._open: Parts | None = None

    @property
    def entered(self) -> bool:
        """Whether the host is entered."""
        return self._open is not None

    @property
    def settings(self) -> HostSettings:
        """The present settings of the host: every section but `providers` and `mcp_servers`."""
        # Each request reads it several times: without the two calls behind `configuration`.
        return self._require_entered().current.configuration.settings

    @property
    def registry(self) -> FunctionRegistry:
        """The providers as one executor."""
        return self._require_entered().registry

    async def scrape(self) -> library_types.CollectorRegistry:
        """Return the metrics for `/metrics`, after reading what only the store knows."""
        await self.operations.refresh()
        return await self._require_entered().metrics.load()

    @property
    def metrics(self) -> library_types.CollectorRegistry:
        """The registry of the metrics that `/metrics` shows."""
        return self._require_entered().metrics.registry

    @property
    def operations(self) -> Operations:
        """What the host counts of itself."""
        return self._require_entered().operations

    @property
    def store(self) -> Store:
        """The store of the host's records."""
        return self._require_entered().records.store

    async def scope_of(self, credentials: Mapping[str, str]) -> str:
        """Return the scope of the credentials that a caller brings, for the key of what is kept for it; empty for none.

        It is a digest by the host's key. Raises `StoreError`.
        """
        return await self._require_entered().services.scope_of(credentials)

    @property
    def approvals(self) -> library_types.HostApprovals:
        """The calls that wait for a person."""
        return self._require_entered().running.approvals

    @property
    def decision_key(self) -> DecisionKey:
        """The key that decides on calls over HTTP while the configuration has no `auth`; made when first needed."""
        return self._require_entered().decision_key

    @property
    def sessions(self) -> library_types.HostSessions:
        """The sessions of applications that lend their tools."""
        return self._require_entered().running.sessions

    @property
    def toolsets(self) -> ToolsetService:
        """The toolsets and the allowlists of agents."""
        return self._require_entered().toolsets

    @property
    def servers(self) -> ToolServers:
        """The MCP servers."""
        return self._require_entered().servers

    def part(self, kind: type[P]) -> P | None:
        """Return the open part of this class; None if the file had no section for it since the host was entered."""
        return self._require_entered().running.find(kind)

    @property
    def parts(self) -> Sequence[HostPart[Any]]:
        """The parts that the file can have a section for."""
        return self._require_entered().configuration.parts

    @property
    def quotas(self) -> QuotaUse:
        """The present use of quotas by tenants and keys."""
        return self._require_entered().quotas

    @property
    def saved_toolsets(self) -> SavedToolsets:
        """The saved toolsets of each owner, with notes."""
        return self._require_entered().saved

    async def load_session(self, code: str) -> None:
        """Make known here a session that another process of the store has created. Raises like `sessions.find`."""
        await self.sessions.bring(code)

    async def catalog_for(
        self,
        principal: Principal,
        *,
        agent: str | None = None,
        session: str | None = None,
        toolsets: Collection[str] | None = None,
        within: Hashable = None,
    ) -> Catalog:
        """Return what `executor_for` lists, after opening the toolsets that list nothing before they are opened."""
        chosen = self.executor_for(principal, agent=agent, session=session, toolsets=toolsets, within=within)
        return await open_catalog(chosen)

    def executor_for(
        self,
        principal: Principal,
        *,
        agent: str | None = None,
        session: str | None = None,
        toolsets: Collection[str] | None = None,
        within: Hashable = None,
    ) -> ModelTools:
        """Return the caller's tools as one executor that follows changes (docs/reference/http.md, *whose catalog*).

        `toolsets` are the ids of the agent's toolsets that this request uses, None or empty for all; the session's own
        tools stay in any case. `within` is the key of a conversation without a session, such as one of MCP, in which
        toolsets are opened once.

        Raises `AgentRequired`, `AgentNotAllowed`, and for the session `InvalidSessionCode`, `SessionNotFound` and
        `SessionGone`; `load_session` must have loaded a session of another process. Without the scope `tools:call`
        every tool is listed and refused.
        """
        opened = self._require_entered()
        chosen = frozenset(toolsets) if toolsets else None
        return opened.views.executor_for(principal, agent, _session(opened, session, principal), chosen, within)

    def offering_for(self, principal: Principal, *, agent: str | None = None, within: Hashable = None) -> Offering:
        """Return the prompts and resources of a caller's providers and MCP servers; starts nothing.

        `within` is the key of a conversation, such as a session's code, for which `executor_for` was called before.
        Raises `AgentRequired` and `AgentNotAllowed`.
        """
        return self._require_entered().views.offering_for(principal, agent, within)

    def catalog_page(
        self, principal: Principal, *, agent: str | None = None, session: str | None = None
    ) -> CatalogPage:
        """Return every tool for people who configure, also those that cannot be called; starts nothing.

        With an agent, or for a credential of one: the tools that the agent can reach. Raises like `executor_for`.
        """
        opened = self._require_entered()
        return opened.infos.page(principal, agent, _session(opened, session, principal))

    def reach(self, principal: Principal) -> AgentReach | None:
        """Return what the agents of this principal can reach; None if its credential names no agents."""
        return reach_of(self._require_entered().toolsets.tools, principal)

    @property
    def user_auth_keys(self) -> tuple[str, ...]:
        """The keys of the entries with `user_auth`, of which each caller acts as itself."""
        current = self._require_entered().configuration
        return tuple(list_user_auth(current.providers, current.servers))

    def may_use(self, principal: Principal, kind: str, key: str) -> bool:
        """Return whether an entry may have a tool that this principal may call: by allowlists, tenants and policies.

        `kind` is that of `ToolRef`. The tools of a server that was not listed yet, or of a provider that does not run,
        are not known, and may be.
        """
        opened, reach = self._require_entered(), self.reach(principal)
        if kind != SERVER_KIND:
            running = opened.registry.running().get(key)
            tools = () if running is None else running.catalog.values()
            allowed = [all(gate.refusal(principal) is None for gate in tool.plan.gates) for tool in tools]
            return (reach is None or key in reach.providers) and (any(allowed) or running is None)
        view = next((each for each in opened.servers.servers(principal.tenant) if each.id == key), None)
        if view is None or not view.enabled or not (reach is None or key in reach.servers):
            return False
        configured = opened.configuration.servers.servers.get(key)
        rules: Mapping[str, ToolRule] = {} if configured is None else configured.tools
        known = [
            view.tools.get(tool.name, view.policy) not in _REFUSING
            and rules.get(tool.name, NO_RULE).admits_tenant(principal.tenant)
            for tool in view.record.tools
        ]
        return any(known) if known else view.policy not in _REFUSING

    @property
    def wrong_servers(self) -> tuple[Problem, ...]:
        """The problems of invalid `mcp_servers` entries; the host runs without these servers."""
        return self._require_entered().configuration.servers.problems

    def records(self) -> tuple[ProviderRecord, ...]:
        """Return every provider: those of the configuration in file order, then those that are only installed."""
        opened = self._require_entered()
        entries = opened.configuration.providers
        return (*opened.registry.records(), *only_installed(entries.installed, entries.types.values()))

    @property
    def entry_keys(self) -> Sequence[str]:
        """The keys of the providers that the configuration names; others run because something needs them."""
        return self._require_entered().configuration.providers.keys

    def explain(
        self, tool: str, principal: Principal, *, agent: str | None = None, session: str | None = None
    ) -> Explanation:
        """Return whether this principal can call the tool: every gate in order, and what decided each.

        Raises like `executor_for` for the session. An agent that the principal may not use is a refusing gate.
        """
        opened = self._require_entered()
        return Explainer(opened).explain(tool, principal, agent, _session(opened, session, principal))

    def _require_entered(self) -> Parts:
        if self._open is None:
            raise RuntimeError(
                "the host is not entered: use `async with host:` or pass host.lifespan to the application"
            )
        return self._open


def _session(opened: Parts, code: str | None, principal: Principal) -> library_types.HostSession | None:
    """Return the principal's session of this code, None for no code. Raises `AccessError`."""
    return None if code is None else opened.running.sessions.known_session(code, principal.tenant)
