"""A caller's catalog: the executor for a principal, agent, session and request filter (docs/reference/http.md).

Effective set = agent ∩ tenant ∩ principal ∩ request (docs/reference/toolsets.md). A tool that only the request leaves
out is no secret from its caller: a call of it is `denied`, not `unknown_tool`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import NamedTuple, Self
from weakref import WeakValueDictionary

from toolplug.catalog.call import CallContext, Principal
from toolplug.catalog.catalog import EMPTY_CATALOG, CachedValue, Catalog
from toolplug.catalog.definition import SEARCH_SOURCE
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.offering import EMPTY_OFFERING, Offering, merged_offerings
from toolplug.catalog.plan import ScopeGate
from toolplug.errors import AgentNotAllowed, AgentRequired
from toolplug.execution.executor import LazyExecutor, ModelTools, ToolExecutor
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import CALL_SCOPE
from toolplug.execution.run import UnknownCalls
from toolplug.host.artifacts import SOURCE
from toolplug.host.file.settings import MCP, PROVIDER, split_source
from toolplug.part_protocols.host_part import HostSession
from toolplug.providers.registry import FunctionRegistry
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.toolsets.agent_tools import AgentTools, Choice
from toolplug.toolsets.saved.equipped import EquippedToolsets
from toolplug.toolsets.saved.saved_toolset import ToolsetOwner
from toolplug.toolsets.toolset import Toolset

_LOG = logging.getLogger("toolplug.host")


class FilterGate(NamedTuple):
    """Refuses every caller, for the tools of toolsets that the request does not ask for."""

    name = "request"
    origin = "the request"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return "its toolset is not among those that the request asks for"


_NOT_REQUESTED = FilterGate()


def _left_out(catalog: Catalog) -> Catalog:
    """Return a catalog that lists nothing, and refuses each call of these tools with their own plans."""
    refused = catalog.planned(lambda _, plan: replace(plan, gates=(*plan.gates, _NOT_REQUESTED)))
    listed = Catalog(refused.values(), prefixes=refused.prefixes)
    return Catalog(prefixes=catalog.prefixes, unavailable=layer_catalogs(listed, refused.unavailable or EMPTY_CATALOG))


# A request holds its view only while it runs: without these each request of a caller would build its catalog again.
_NEWEST = 1_000


class RecentViews:
    """One view for each key, kept while it is in use; the `_NEWEST` last ones are kept in any case."""

    def __init__(self) -> None:
        self._views: WeakValueDictionary[Hashable, LiveCatalog] = WeakValueDictionary()
        self._newest: LeastRecentlyUsed[Hashable, LiveCatalog] = LeastRecentlyUsed(_NEWEST)
        self._of_sessions: dict[str, set[Hashable]] = {}

    def view(self, key: Hashable, make: Callable[[], LiveCatalog], *, session: str | None = None) -> LiveCatalog:
        """Return the view of this key, made if there is none. With a `session`, it is dropped when that ends."""
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = make()
        if session is not None and key not in self._newest:
            self._of_sessions.setdefault(session, set()).add(key)
        self._newest.put(key, view)
        return view

    def end(self, session: str) -> None:
        for key in self._of_sessions.pop(session, ()):
            self._newest.drop(key)


class WithReadResultLast:
    """Divides catalogs into their tools and the reader of kept results; `reader()` lists that one tool.

    The tools that search others are left out: they are for the whole catalog of a caller.
    """

    def __init__(self, reader: Callable[[], Catalog]) -> None:
        self._reader = reader
        self.body: CachedValue = CachedValue(
            lambda catalog: catalog.where(lambda tool: tool.definition.ref.source not in (SOURCE, SEARCH_SOURCE))
        )
        self.tail: CachedValue = CachedValue(self.reader_for)
        self.whole: CachedValue = CachedValue(lambda catalog: layer_catalogs(self.body(catalog), self.tail(catalog)))

    def reader_for(self, catalog: Catalog) -> Catalog:
        """Return the reader if a result of these tools may be kept, else nothing."""
        return self._reader() if any(tool.plan.artifacts for tool in catalog.values()) else EMPTY_CATALOG


class _MergedOfferings:
    """Merges the offerings of callers, each combination once, and warns once of each name that is not listed."""

    def __init__(self) -> None:
        self._recent: LeastRecentlyUsed[tuple[Offering, ...], Offering] = LeastRecentlyUsed(_NEWEST)
        self._warned: LeastRecentlyUsed[tuple[str, str, str], bool] = LeastRecentlyUsed(_NEWEST)

    def merge(self, parts: tuple[Offering, ...]) -> Offering:
        """Return the parts one after another; the first of a name or URI wins."""
        known = self._recent.get(parts)
        if known is not None:
            return known
        whole, conflicts = merged_offerings(parts)
        for kind, winner, loser in conflicts:
            key = (loser.key, winner.source, loser.source)
            if key not in self._warned:
                self._warned.put(key, True)
                _LOG.warning(
                    "%r of the %s of %s is not listed: %s comes first and has it already",
                    loser.key,
                    kind,
                    loser.source,
                    winner.source,
                )
        self._recent.put(parts, whole)
        return whole


CREDENTIAL = "the credential"
"""The origin of decisions that the key or token itself carries."""

_NO_CALLS = ScopeGate(CALL_SCOPE, CREDENTIAL)

Parts = tuple[LiveCatalog, ...]
"""The catalogs of a caller, in order; each view follows them directly, so that a change is one step away."""

Choose = Callable[[Parts], LiveCatalog]


class Views:
    """The executors of callers over one registry and its toolsets, with what each owner has equipped.

    `tail()` lists the tool that reads kept results, and `of_parts` the tools of parts.
    """

    def __init__(
        self,
        registry: FunctionRegistry,
        agents: AgentTools,
        tail: Callable[[], Catalog],
        equipment: EquippedToolsets,
        of_parts: Callable[[Principal], LiveCatalog],
    ) -> None:
        self._registry = registry
        self._agents = agents
        self._refused = CachedValue(
            lambda catalog: catalog.planned(lambda _, plan: replace(plan, gates=(*plan.gates, _NO_CALLS)))
        )
        self._left_out = CachedValue(_left_out)
        self._shared_tools = MergedExecutor(self._unknown(), registry, agents.servers)
        self._nothing_chosen = self._shared_tools.view(self._left_out)
        self._order = WithReadResultLast(tail)
        self._equipment = equipment
        self._of_parts = of_parts
        self._recent = RecentViews()
        self._refused_search = CachedValue(lambda catalog: self._refused(self._searchable(catalog)))
        self._nothing = MergedExecutor(self._unknown())
        self._offerings = _MergedOfferings()

    def _searchable(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the tools that search deferred ones, as plugins describe its tools to this caller."""
        return self._registry.plugins.descriptions.describe(self._registry.search.add_search_tools(catalog))

    def executor_for(
        self,
        principal: Principal,
        agent: str | None,
        session: HostSession | None,
        only: frozenset[str] | None = None,
        within: Hashable = None,
    ) -> ModelTools:
        """Return the caller's tools, as equipped. Raises `AgentRequired` and `AgentNotAllowed`.

        `only` limits them to these toolsets and the session's own tools. Without a session, toolsets are opened once
        for each key `within`, None: for each call.
        """
        if acts_as_nobody(principal, agent):
            return self._nothing
        if acting_agent(principal, agent) is not None:
            return self._compose(principal, agent, session, only, self._chooser(principal, session), within)
        code = None if session is None else session.code
        # Without an agent there are no toolsets to choose from: that the request chooses matters, not what.
        key = (principal, code, session and session.executor, only is None)

        def make_view() -> LiveCatalog:
            view = self._chooser(principal, session)(self._without_agent(principal, session, only))
            view.default_context = CallContext(principal=principal, session=code)
            return view

        return self._recent.view(key, make_view, session=code)

    def offering_for(self, principal: Principal, agent: str | None, within: Hashable = None) -> Offering:
        """Return the caller's prompts and resources, whatever tools are equipped. Raises like `executor_for`."""
        if acts_as_nobody(principal, agent) or not principal.has_scope(CALL_SCOPE):
            return EMPTY_OFFERING
        acting = acting_agent(principal, agent)
        if acting is None:
            own = (generation.offering for generation in self._registry.running().values())
            parts = (*own, *self._agents.offerings(Choice("", servers=True)))
        else:
            parts = tuple(self._agents.offerings(Choice(principal.tenant, acting), within))
        return self._offerings.merge(parts)

    def _chooser(self, principal: Principal, session: HostSession | None) -> Choose:
        """Return a function that joins parts as the owner has equipped them, with tools that search deferred ones."""
        code = None if session is None else session.code
        owner = ToolsetOwner(principal.tenant, principal.subject, code)
        search = self._searchable if principal.has_scope(CALL_SCOPE) else self._refused_search
        return lambda parts: self._equipment.view(owner, parts, code, search)

    def end(self, session: str) -> None:
        self._recent.end(session)

    def unchosen(self, principal: Principal, agent: str | None, session: HostSession | None) -> ToolExecutor:
        """Return the caller's tools as if nothing were equipped. Raises like `executor_for`."""
        if acts_as_nobody(principal, agent):
            return self._nothing
        code = None if session is None else session.code
        return self._compose(
            principal, agent, session, None, lambda parts: MergedExecutor(self._unknown(), *parts, session=code)
        )

    def _compose(
        self,
        principal: Principal,
        agent: str | None,
        session: HostSession | None,
        only: frozenset[str] | None,
        choose: Choose,
        within: Hashable = None,
    ) -> ModelTools:
        acting = acting_agent(principal, agent)
        if acting is None:
            return choose(self._without_agent(principal, session, only))
        choice = Choice(principal.tenant, acting, only=only)

        def compose_view(key: Hashable) -> ToolExecutor:
            return choose(self._in_session(self._of_agent(choice, key), principal, session))

        code = None if session is None else session.code
        context = CallContext(principal=principal, agent=acting, session=code)
        return LazyExecutor(self._agents, choice, within if session is None else code, compose_view, context)

    def _without_agent(self, principal: Principal, session: HostSession | None, only: frozenset[str] | None) -> Parts:
        tools = self._in_session(self._shared_tools if only is None else self._nothing_chosen, principal, session)
        return (*tools, self._seen_by(principal, self._of_parts(principal)))

    def _of_agent(self, choice: Choice, session: Hashable) -> LiveCatalog:
        """Return the toolsets of the choice; those that only the request leaves out refuse calls."""
        tools = self._agents.executor(choice, session)
        if choice.only is None:
            return tools
        others = self._agents.executor(choice._replace(only=None, without=choice.only), session)
        return MergedExecutor(self._unknown(), tools, others.view(self._left_out))

    def toolset(self, tenant: str, toolset: str) -> ToolExecutor:
        """Return one toolset under its prefix as a tenant sees it."""
        caller = Principal(tenant=tenant)
        return self._agents.executor(Choice(tenant, None, (toolset,))).view(lambda catalog: catalog.visible_to(caller))

    def _in_session(self, tools: LiveCatalog, principal: Principal, session: HostSession | None) -> Parts:
        """Return these tools, then the session's, then the readers of results that are kept of either."""
        order = self._order
        if session is None:
            return (self._seen_by(principal, tools.view(order.whole)),)
        own = session.executor
        return (
            self._share(principal, tools, order.body),
            self._seen_by(principal, own),
            self._share(principal, tools, order.tail),
            self._seen_by(principal, own.view(order.reader_for)),
        )

    def _share(self, principal: Principal, tools: LiveCatalog, part: CachedValue) -> LiveCatalog:
        """Return a part of these tools that all sessions of the principal share."""
        return self._recent.view((principal, tools, part), lambda: self._seen_by(principal, tools.view(part)))

    def _seen_by(self, principal: Principal, tools: LiveCatalog) -> LiveCatalog:
        """Return the tools that are visible to the principal; without the scope to call, each is refused."""
        if principal.has_scope(CALL_SCOPE):
            return tools.view(lambda catalog: catalog.visible_to(principal))
        return tools.view(lambda catalog: self._refused(catalog).visible_to(principal))

    def _unknown(self) -> UnknownCalls:
        return self._registry.unknown


def acting_agent(principal: Principal, agent: str | None) -> str | None:
    """Return the agent that the caller acts as, None for none; a credential of one agent implies it.

    Raises `AgentRequired` for a credential of several agents without a choice, and `AgentNotAllowed`.
    """
    if principal.agents is None:
        return agent
    if agent is None:
        if len(principal.agents) == 1:
            return next(iter(principal.agents))
        raise AgentRequired(sorted(principal.agents))
    if agent not in principal.agents:
        raise AgentNotAllowed(agent)
    return agent


class AgentReach(NamedTuple):
    """What agents can reach: `toolsets` in the order of the allowlists, keys of `providers`, and ids of `servers`.

    A principal whose credential names agents is shown nothing else; a request that names no agent counts for all.
    """

    toolsets: tuple[Toolset, ...] = ()
    providers: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tools: AgentTools, tenant: str, agents: Iterable[str]) -> Self:
        """Return what the tenant's agents can reach by their present allowlists."""
        found: dict[str, Toolset] = {}
        for agent in agents:
            found.update({toolset.id: toolset for toolset in tools.choose(Choice(tenant, agent))})
        sources: dict[str, set[str]] = {PROVIDER: set(), MCP: set()}
        for toolset in found.values():
            kind, name = split_source(toolset.shown) or (None, "")
            if kind in sources:
                sources[kind].add(name)
        return cls(tuple(found.values()), frozenset(sources[PROVIDER]), frozenset(sources[MCP]))


def reach_of(tools: AgentTools, principal: Principal) -> AgentReach | None:
    """Return what the agents of the principal can reach; None if its credential names no agents."""
    if principal.agents is None:
        return None
    return AgentReach.of(tools, principal.tenant, sorted(principal.agents))


def acts_as_nobody(principal: Principal, agent: str | None) -> bool:
    """Return whether the credential has an empty list of agents, so that it lists and calls nothing."""
    return agent is None and principal.agents is not None and not principal.agents
