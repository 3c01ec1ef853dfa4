"""Executors of a session's own tools, which exist while they are in use."""

from __future__ import annotations

from weakref import ref

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog, no_provider
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Target, Tool
from toolplug.execution.executor import DelegatingExecutor, ToolExecutor
from toolplug.execution.limiters import AbandonedCallLimit, SourceSwitch
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import PlanSource
from toolplug.execution.run import UnknownCalls
from toolplug.parts.sessions.peers.relay import LATE_S
from toolplug.parts.sessions.record import SessionState
from toolplug.parts.sessions.shared import SessionServices
from toolplug.parts.sessions.tools.session_tool import SOURCE


class LentTools(MergedExecutor):
    """The tools that a plugin has registered; until then the default tools, if any."""

    def __init__(self, unknown: UnknownCalls, default: ToolExecutor | None) -> None:
        self._own = LiveCatalog(unknown)
        super().__init__(unknown, self._own if default is None else default)

    @property
    def own(self) -> Catalog:
        """The registered tools."""
        return self._own.catalog

    def lend(self, catalog: Catalog, *, registered: bool) -> None:
        """Replace the registered tools; from the first time with `registered` on they replace the default tools."""
        self._own.publish(catalog)
        if registered:
            self.join(self._own)


class SessionRoute(DelegatingExecutor):
    """An executor for the session's own route, whose text for an unknown tool names the session, not a provider."""

    async def execute(self, call: ToolCall, context: CallContext | None = None) -> ToolResult:
        """Run one call. An unknown, hidden or removed tool without a toolset in its name gets the same text."""
        result = await self._executor.execute(call, context)
        if result.status is ToolStatus.UNKNOWN_TOOL and result.output == no_provider(result.name):
            return result._replace(output=f'session has no tool "{result.name}"')
        return result


class SessionExecutors:
    """Creates the executor on demand, holds it weakly and updates it. `target` gets every call."""

    def __init__(self, code: str, shared: SessionServices, target: Target) -> None:
        self._code = code
        self._shared = shared
        self._switch = SourceSwitch()
        self._abandoned = AbandonedCallLimit(SOURCE)
        self._target = target
        # Weak: an executor listens to catalogs, and ten thousand sessions that nobody uses should not.
        self._kept: ref[LentTools] | None = None

    def executor(self, state: SessionState, *, reachable: bool) -> LentTools:
        """Return the executor of the session in this state; `reachable`: its tools can be called."""
        lent = self._lend()
        if lent is None:
            lent = LentTools(
                self._shared.planner.services.unknown,
                None if state.registered else self._shared.neighbours.default_tools(state.tenant),
            )
            self._kept = ref(lent)
            lent.lend(self._catalog(state, reachable, EMPTY_CATALOG), registered=state.registered)
        # The executors that were used last are kept alive there, or each call would build one anew.
        self._shared.executors.put(self._code, lent)
        return lent

    def publish(self, state: SessionState, *, reachable: bool, anew: bool = False) -> None:
        """Publish the tools of this state to the executor, if one is in use; `anew`: with new plans."""
        self._shared.types.note(state, self._shared.store.now())
        lent = self._lend()
        if lent is not None:
            known = EMPTY_CATALOG if anew else lent.own
            lent.lend(self._catalog(state, reachable, known), registered=state.registered)

    def end(self) -> None:
        """Remove all tools, and close their switch for calls that wait."""
        # Before the catalog is emptied: calls that wait for a limiter look at the switch when their turn comes.
        self._switch.open = False
        lent = self._lend()
        if lent is not None:
            lent.lend(EMPTY_CATALOG, registered=True)
        self._shared.executors.drop(self._code)

    def _lend(self) -> LentTools | None:
        return None if self._kept is None else self._kept()

    def _catalog(self, state: SessionState, reachable: bool, before: Catalog) -> Catalog:
        """Return the session's tools, as unavailable if not `reachable`. Unchanged tools stay the same objects."""
        if self._shared.planner.hides:
            return EMPTY_CATALOG
        known = before if before.unavailable is None else before.unavailable
        tools = [self._tool(item.definition, known) for item in state.tools.tools.values()]
        return Catalog(tools) if reachable else Catalog(unavailable=Catalog(tools))

    def _tool(self, definition: ToolDefinition, known: Catalog) -> Tool:
        kept = known.get(definition.name)
        # By identity, as equal definitions are one object (`DefinitionCache`).
        if kept is not None and kept.definition is definition:
            return kept
        planner = self._shared.planner
        counters = planner.services.accounting.counters(SOURCE, SOURCE)
        late_s = 0.0 if self._shared.peers is None else LATE_S
        return planner.tool(definition, PlanSource(self._target, self._switch, counters, self._abandoned, late_s))
