"""A session's own tools as an executor, which is there while anybody uses it."""

from __future__ import annotations

from weakref import ref

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog, no_provider
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import CallCounters, Target, Tool
from toolplug.execution.executor import Listener, ToolExecutor, Unsubscribe
from toolplug.execution.limits import AbandonedCallLimit, SourceSwitch
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.plans import PlanSource
from toolplug.sessions.record import SessionState
from toolplug.sessions.session_tool import SOURCE
from toolplug.sessions.shared import SessionServices


class LentTools(MergedExecutor):
    """What a plugin has registered; the default tools, where there are any, until it registers."""

    def __init__(self, unknown: CallCounters, default: ToolExecutor | None) -> None:
        self._own = LiveCatalog(unknown)
        super().__init__(unknown, self._own if default is None else default)

    @property
    def own(self) -> Catalog:
        """The registered tools."""
        return self._own.catalog

    def lend(self, catalog: Catalog, *, registered: bool) -> None:
        """Make these the registered tools."""
        self._own.publish(catalog)
        if registered:
            self.join(self._own)

    def end(self) -> None:
        """Lend nothing any more."""
        self.lend(EMPTY_CATALOG, registered=True)


class SessionRoute:
    """An executor as the session's own route has it: what is not there is a tool of the session, not of a provider."""

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    @property
    def catalog(self) -> Catalog:
        """The executor's own."""
        return self._executor.catalog

    def can_execute(self, name: str) -> bool:
        """As the executor says."""
        return self._executor.can_execute(name)

    async def execute(self, call: ToolCall, context: CallContext | None = None) -> ToolResult:
        """Run one call. A name without a toolset that is unknown, hidden or just removed gets one text."""
        result = await self._executor.execute(call, context)
        if result.status is ToolStatus.UNKNOWN_TOOL and result.output == no_provider(result.name):
            return result._replace(output=f'session has no tool "{result.name}"')
        return result

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Hear what the executor tells."""
        return self._executor.subscribe(listener)


class SessionExecutors:
    """Makes the executor when it is asked for, and keeps it up to date. `target` is what every call reaches."""

    def __init__(self, code: str, shared: SessionServices, target: Target) -> None:
        self._code = code
        self._shared = shared
        self._switch = SourceSwitch()
        self._abandoned = AbandonedCallLimit(SOURCE)
        self._target = target
        self._kept: ref[LentTools] | None = None

    def executor(self, state: SessionState, *, reachable: bool) -> LentTools:
        """What the plugin has registered; before that the default tools."""
        lent = self._lent()
        if lent is None:
            lent = LentTools(
                self._shared.planner.services.unknown,
                None if state.registered else self._shared.neighbours.default_tools(state.tenant),
            )
            self._kept = ref(lent)
            lent.lend(self._catalog(state, reachable, EMPTY_CATALOG), registered=state.registered)
        self._shared.executors.put(self._code, lent)
        return lent

    def publish(self, state: SessionState, *, reachable: bool, anew: bool = False) -> None:
        """Lend the tools of this state from now on; `anew`: under new plans."""
        lent = self._lent()
        if lent is not None:
            known = EMPTY_CATALOG if anew else lent.own
            lent.lend(self._catalog(state, reachable, known), registered=state.registered)

    def end(self) -> None:
        """Lend nothing any more, not even to calls that are on their way."""
        self._switch.open = False
        lent = self._lent()
        if lent is not None:
            lent.end()
        self._shared.executors.drop(self._code)

    def _lent(self) -> LentTools | None:
        return None if self._kept is None else self._kept()

    def _catalog(self, state: SessionState, reachable: bool, before: Catalog) -> Catalog:
        """The session's tools; those of a plugin that is gone are away. What did not change stays the same object."""
        if self._shared.planner.hides:
            return EMPTY_CATALOG
        known = before if before.unavailable is None else before.unavailable
        tools = [self._tool(item.definition, known) for item in state.tools.tools.values()]
        return Catalog(tools) if reachable else Catalog(unavailable=Catalog(tools))

    def _tool(self, definition: ToolDefinition, known: Catalog) -> Tool:
        kept = known.get(definition.name)
        if kept is not None and kept.definition is definition:
            return kept
        planner = self._shared.planner
        counters = planner.services.accounting.counters(SOURCE, SOURCE)
        return planner.tool(definition, PlanSource(self._target, self._switch, counters, self._abandoned))
