"""A caller's catalog: the executor for a principal, agent, session and request filter (docs/reference/http.md)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakValueDictionary

from toolplug.catalog.access import ScopeGate
from toolplug.catalog.call import CallContext, Principal
from toolplug.catalog.catalog import EMPTY_CATALOG, CachedValue, Catalog
from toolplug.catalog.layered_catalog import layered
from toolplug.catalog.plan import CallCounters
from toolplug.errors import AgentNotAllowed, AgentRequired
from toolplug.execution.artifacts import SOURCE
from toolplug.execution.executor import ModelTools, ToolExecutor
from toolplug.execution.live import LiveCatalog, merged_executor
from toolplug.execution.plans import CALL_SCOPE, UNKNOWN
from toolplug.host.agent_reach import acts_as_nobody
from toolplug.providers.registry import FunctionRegistry
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.sessions.session import Session
from toolplug.toolsets.agent_tools import AgentTools, Choice
from toolplug.toolsets.first_use import LazyExecutor
from toolplug.toolsets.saved.equipped import EquippedToolsets
from toolplug.toolsets.saved.saved_toolset import ToolsetOwner

# The toolsets that a request asks for, among those of its agent: the rest is not listed, and each call of it refused.
#
# Effective set = agent ∩ tenant ∩ principal ∩ request (docs/reference/toolsets.md). A tool that only the request leaves
# out is no secret from its caller, so a call of it is `denied`, not `unknown_tool`.


class FilterGate(NamedTuple):
    """Refuses whoever calls."""

    name = "request"
    origin = "the request"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return "its toolset is not among those that the request asks for"


_LEFT_OUT = FilterGate()


def left_out(catalog: Catalog) -> Catalog:
    """Nothing to list; a call of one of these tools is answered by its own plan, which refuses it."""
    refused = catalog.planned(lambda _, plan: replace(plan, gates=(*plan.gates, _LEFT_OUT)))
    listed = Catalog(refused.values(), prefixes=refused.prefixes)
    return Catalog(prefixes=catalog.prefixes, unavailable=layered(listed, refused.unavailable or EMPTY_CATALOG))


_NEWEST = 1_000


class RecentViews:
    """One view for each key: as long as anybody holds it, and the newest few also when nobody does."""

    def __init__(self) -> None:
        self._views: WeakValueDictionary[Hashable, LiveCatalog] = WeakValueDictionary()
        self._newest: LeastRecentlyUsed[Hashable, LiveCatalog] = LeastRecentlyUsed(_NEWEST)
        self._of_sessions: dict[str, set[Hashable]] = {}

    def view(self, key: Hashable, make: Callable[[], LiveCatalog], *, session: str | None = None) -> LiveCatalog:
        """The view of this key, made where there is none. One of a session is dropped when the session ends."""
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = make()
        if session is not None and key not in self._newest:
            self._of_sessions.setdefault(session, set()).add(key)
        self._newest.put(key, view)
        return view

    def end(self, session: str) -> None:
        """Drop the views of a session that is over."""
        for key in self._of_sessions.pop(session, ()):
            self._newest.drop(key)


class WithReadResultLast:
    """Divides catalogs into their tools and the reader of kept results; `reader()` is that one tool."""

    def __init__(self, reader: Callable[[], Catalog]) -> None:
        self._reader = reader
        self.body: CachedValue = CachedValue(_without_reader)
        self.tail: CachedValue = CachedValue(self.reader_for)
        self.whole: CachedValue = CachedValue(lambda catalog: layered(self.body(catalog), self.tail(catalog)))

    def reader_for(self, catalog: Catalog) -> Catalog:
        """The reader where a result of these tools may be kept, else nothing."""
        return self._reader() if any(tool.plan.artifacts for tool in catalog.values()) else EMPTY_CATALOG


def _without_reader(catalog: Catalog) -> Catalog:
    return catalog.where(lambda tool: tool.definition.ref.source != SOURCE)


CREDENTIAL = "the credential"
"""The origin of what was decided when the key or token was made."""

_NO_CALLS = ScopeGate(CALL_SCOPE, CREDENTIAL)


Parts = tuple[LiveCatalog, ...]
"""What a caller sees, in order; each view of it follows the parts themselves, so that a change has one step to go."""

Choose = Callable[[Parts], LiveCatalog]


class Views:
    """The callers' views of one registry and its toolsets, as each has equipped some or not.

    `tail()` is the tool that reads kept results.
    """

    def __init__(
        self, registry: FunctionRegistry, agents: AgentTools, tail: Callable[[], Catalog], equipment: EquippedToolsets
    ) -> None:
        self._registry = registry
        self._agents = agents
        self._refused = CachedValue(_refused)
        self._left_out = CachedValue(left_out)
        self._everybodys = merged_executor(self._unknown(), registry, agents.servers)
        self._nothing_chosen = self._everybodys.view(self._left_out)
        self._order = WithReadResultLast(tail)
        self._equipment = equipment
        self._recent = RecentViews()
        self._nothing = merged_executor(self._unknown())

    def executor_for(
        self,
        principal: Principal,
        agent: str | None,
        session: Session | None,
        only: frozenset[str] | None = None,
        within: Hashable = None,
    ) -> ModelTools:
        """The tools of this caller, as their equipped toolset chooses. Raises `AgentRequired` and `AgentNotAllowed`.

        `only`: those of these toolsets, and what the session has of its own. `within`: for what toolsets are opened
        where there is no session; None: for each call.
        """
        if acts_as_nobody(principal, agent):
            return self._nothing
        if acting_agent(principal, agent) is not None:
            return self._composed(principal, agent, session, only, self._chooser(principal, session), within)
        code = None if session is None else session.code
        key = (principal, code, session and session.executor, only is None)

        def made() -> LiveCatalog:
            view = self._chooser(principal, session)(self._without_agent(principal, session, only))
            view.default_context = CallContext(principal=principal, session=code)
            return view

        return self._recent.view(key, made, session=code)

    def _chooser(self, principal: Principal, session: Session | None) -> Choose:
        code = None if session is None else session.code
        owner = ToolsetOwner(principal.tenant, principal.subject, code)
        return lambda parts: self._equipment.view(owner, parts, code)

    def end(self, session: str) -> None:
        """Drop what was kept for a session that is over."""
        self._recent.end(session)

    def unchosen(self, principal: Principal, agent: str | None, session: Session | None) -> ToolExecutor:
        """The tools of this caller, whatever is equipped. Raises like `executor_for`."""
        if acts_as_nobody(principal, agent):
            return self._nothing
        code = None if session is None else session.code
        return self._composed(
            principal, agent, session, None, lambda parts: merged_executor(self._unknown(), *parts, session=code)
        )

    def _composed(
        self,
        principal: Principal,
        agent: str | None,
        session: Session | None,
        only: frozenset[str] | None,
        choose: Choose,
        within: Hashable = None,
    ) -> ModelTools:
        acting = acting_agent(principal, agent)
        if acting is None:
            return choose(self._without_agent(principal, session, only))
        choice = Choice(principal.tenant, acting, only=only)

        def composed(key: Hashable) -> ToolExecutor:
            return choose(self._in_session(self._of_agent(choice, key), principal, session))

        code = None if session is None else session.code
        context = CallContext(principal=principal, agent=acting, session=code)
        return LazyExecutor(self._agents, choice, within if session is None else code, composed, context)

    def _without_agent(self, principal: Principal, session: Session | None, only: frozenset[str] | None) -> Parts:
        return self._in_session(self._everybodys if only is None else self._nothing_chosen, principal, session)

    def _of_agent(self, choice: Choice, session: Hashable) -> LiveCatalog:
        """The toolsets of the choice; those that only the request leaves out are not listed."""
        tools = self._agents.executor(choice, session)
        if choice.only is None:
            return tools
        others = self._agents.executor(choice._replace(only=None, without=choice.only), session)
        return merged_executor(self._unknown(), tools, others.view(self._left_out))

    def default_tools(self, tenant: str, toolset: str | None) -> ToolExecutor | None:
        """One toolset under its prefix, as a tenant sees it, for sessions that have nothing of their own."""
        if toolset is None:
            return None
        caller = Principal(tenant=tenant)
        return self._agents.executor(Choice(tenant, None, (toolset,))).view(lambda catalog: catalog.visible_to(caller))

    def _in_session(self, tools: LiveCatalog, principal: Principal, session: Session | None) -> Parts:
        """These tools, then the session's, then what reads the results that are kept of any of them."""
        order = self._order
        if session is None:
            return (self._seen_by(principal, tools.view(order.whole)),)
        own = session.executor
        return (
            self._shared(principal, tools, order.body),
            self._seen_by(principal, own),
            self._shared(principal, tools, order.tail),
            self._seen_by(principal, own.view(order.reader_for)),
        )

    def _shared(self, principal: Principal, tools: LiveCatalog, part: CachedValue) -> LiveCatalog:
        """A part of these tools that all sessions of the caller see alike."""
        return self._recent.view((principal, tools, part), lambda: self._seen_by(principal, tools.view(part)))

    def _seen_by(self, principal: Principal, tools: LiveCatalog) -> LiveCatalog:
        """These tools without those that are hidden from the caller; without the scope to call, each refused."""
        if principal.has_scope(CALL_SCOPE):
            return tools.view(lambda catalog: catalog.visible_to(principal))
        return tools.view(lambda catalog: self._refused(catalog).visible_to(principal))

    def _unknown(self) -> CallCounters:
        return self._registry.accounting.counters(UNKNOWN, UNKNOWN)


def _refused(catalog: Catalog) -> Catalog:
    return catalog.planned(lambda _, plan: replace(plan, gates=(*plan.gates, _NO_CALLS)))


def acting_agent(principal: Principal, agent: str | None) -> str | None:
    """The agent that the caller acts as, None for none; a credential of one agent implies it."""
    if principal.agents is None:
        return agent
    if agent is None:
        if len(principal.agents) == 1:
            return next(iter(principal.agents))
        raise AgentRequired(sorted(principal.agents))
    if agent not in principal.agents:
        raise AgentNotAllowed(agent)
    return agent
