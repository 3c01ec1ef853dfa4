"""Tool executors: a current catalog that can be replaced, views of it, and several merged into one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from types import CoroutineType
from typing import Any
from weakref import ref

from toolplug.catalog.call import ANONYMOUS_CONTEXT, CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog, CatalogDiff
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.plan import Plan, Tool
from toolplug.execution.executor import (
    Listener,
    ModelTools,
    ToolExecutor,
    Unsubscribe,
    add_listener,
    no_call,
    no_context,
)
from toolplug.execution.results import unavailable
from toolplug.execution.run import UnknownCalls, run

_LOG = logging.getLogger("toolplug.execution")

Derive = Callable[[Catalog], Catalog]


class LiveCatalog(ModelTools):
    """A tool executor over the current catalog, which its source replaces with `publish`.

    `unknown` answers the calls of names that are not listed; `default_context` is that of a call without one. A session
    has several executors: one without listeners and followers takes a few hundred bytes.

    While `_fresh` is True, `_catalog` is current; a view that has been marked is not, until it is read. A fresh view
    has fresh sources, so a view that is not fresh need not mark its followers again.
    """

    __slots__ = (
        "__weakref__",
        "_catalog",
        "_followers",
        "_fresh",
        "_listeners",
        "_marked",
        "_pending",
        "_session",
        "_telling",
        "_unknown",
        "default_context",
    )

    def __init__(self, unknown: UnknownCalls, catalog: Catalog = EMPTY_CATALOG) -> None:
        self._unknown = unknown
        self.default_context: CallContext = ANONYMOUS_CONTEXT
        self._session: str | None = None
        self._catalog = catalog
        self._fresh = True
        self._listeners: dict[object, Listener] = {}
        self._pending: deque[tuple[CatalogDiff, tuple[object, ...]]] = deque()
        self._telling = False
        self._followers: dict[ref[LiveCatalog], None] | None = None
        self._marked: dict[object, Callable[[], None]] | None = None

    @property
    def catalog(self) -> Catalog:
        """The current catalog; the same object until something changes."""
        return self._catalog

    @property
    def invalidates(self) -> bool:
        """True if every change marks the views."""
        return True

    def can_execute(self, name: str) -> bool:
        """Return True for exactly the names in the catalog, canonical or wire."""
        return self.catalog.find(name) is not None

    def execute(self, call: ToolCall, context: CallContext | None = None) -> CoroutineType[Any, Any, ToolResult]:
        """Run one call by the plan of its name in the current catalog, listed or unavailable. A failure is a result.

        The name is looked up at once, and the call runs when the coroutine is awaited.
        """
        if context is None:
            context = self.default_context
        elif not isinstance(context, CallContext):  # pyright: ignore[reportUnnecessaryIsInstance]  a slip of people
            raise no_context(context) if isinstance(call, ToolCall) else no_call(call)
        catalog = self._catalog if self._fresh else self.catalog
        try:
            tool = catalog.find(call.name)
        except AttributeError:  # free for the others: people begin with a name or a mapping in place of a ToolCall
            raise no_call(call) from None
        if tool is None:
            tool = None if catalog.unavailable is None else catalog.unavailable.find(call.name)
            if tool is None:
                return self._not_found(catalog, call, context)
        plan, session = tool.plan, self._session
        if plan.forward is not None:
            return plan.forward(self, call, context)
        hooks = plan.hooks.current
        hooked = hooks is not None
        if session is not None and context.session != session and (hooked or _looks_at(plan, context)):
            context = context.of_session(session)
        if hooked and hooks.traces:
            return _run_traced(tool, call, context)
        return run(plan, call, context, hooked, tool.definition)

    async def _not_found(self, catalog: Catalog, call: ToolCall, context: CallContext) -> ToolResult:
        """Answer the call of a name that is not in the catalog."""
        if reason := self.closed_because:
            self._unknown.counters.record("unavailable", 0.0)
            return unavailable(call, reason, code="not_entered")
        return await self._unknown.answer(call, catalog.unknown(call.name), context)

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call the listener with each difference, in order and never from within another, until unsubscribed."""
        return add_listener(self._listeners, listener)

    def on_invalidate(self, told: Callable[[], None]) -> Unsubscribe:
        """Call `told`, which must not raise, as soon as the catalog may have changed since it was last read.

        Unlike `subscribe` this does not read the catalog, so that a listener can follow thousands of them.
        """
        self._marked = {} if self._marked is None else self._marked
        return add_listener(self._marked, told)

    def publish(self, catalog: Catalog) -> CatalogDiff:
        """Replace the current catalog, tell the listeners the difference, and return it."""
        before, self._catalog = self._catalog, catalog
        self.mark_followers()
        diff = before.diff(catalog)
        if diff:
            self._tell(diff)
        return diff

    def view(self, derive: Derive) -> LiveCatalog:
        """Return an executor over a pure function of this catalog, which never raises; it follows every change."""
        return _View(self._unknown, (self,), lambda catalogs: derive(catalogs[0]), self._session)

    def add_dependent(self, view: LiveCatalog) -> None:
        """Mark this view when the catalog changes; holds it weakly."""
        if self._followers is None:
            self._followers = {}
        # A view that is released takes itself out: the reference is passed to the function, and it is the key.
        self._followers[ref(view, self._followers.__delitem__)] = None

    def remove_dependent(self, view: LiveCatalog) -> None:
        """Stop marking this view."""
        if self._followers is not None:
            self._followers.pop(ref(view), None)

    def mark_followers(self) -> None:
        """Mark the views of the changed catalog, and the views of those, in one loop."""
        marked: list[LiveCatalog] = [self]
        for source in marked:
            if source._marked:
                # A copy: a listener may unsubscribe when it is told.
                for told in tuple(source._marked.values()):
                    told()
            for follower in tuple(source._followers or ()):  # a view may be released in the loop
                view = follower()
                if view is not None and view._fresh:
                    view._fresh = False
                    if view._followers or view._marked:
                        marked.append(view)

    def _tell(self, diff: CatalogDiff) -> None:
        """Tell the current listeners, after the differences that are still pending."""
        # The listeners of now: one that subscribes later has read the newer catalog already.
        self._pending.append((diff, tuple(self._listeners)))
        if self._telling:
            return
        self._telling = True
        try:
            while self._pending:
                self._tell_each(*self._pending.popleft())
        finally:
            self._telling = False

    def _tell_each(self, diff: CatalogDiff, subscriptions: tuple[object, ...]) -> None:
        for subscription in subscriptions:
            listener = self._listeners.get(subscription)
            # Another listener has unsubscribed it since.
            if listener is None:
                continue
            try:
                listener(diff)
            except Exception:  # noqa: BLE001  a named boundary: one listener never costs another its event
                _LOG.exception("a listener of a catalog raised; the others hear the change all the same")


class _View(LiveCatalog):
    """A catalog derived from others: marked when one of them changes, and derived again when it is next read.

    It listens to its sources only while it has listeners itself, so a view that is dropped leaves nothing behind.
    Sources that are not a `LiveCatalog` cannot mark it; their catalogs are compared at each read.
    """

    __slots__ = ("_derive", "_invalidates", "_seen", "_sources", "_told", "_upstream")

    def __init__(
        self,
        unknown: UnknownCalls,
        sources: tuple[ToolExecutor, ...],
        derive: Callable[[tuple[Catalog, ...]], Catalog],
        session: str | None = None,
    ) -> None:
        super().__init__(unknown)
        self._session = session
        self._sources: tuple[ToolExecutor, ...] = ()
        self._derive = derive
        self._seen: tuple[Catalog, ...] = ()
        self._fresh = False
        self._upstream: tuple[Unsubscribe, ...] = ()
        self._told = EMPTY_CATALOG
        self._invalidates = False
        self._follow(sources)

    @property
    def closed_because(self) -> str:
        """The reason of the first source that has not been opened; empty if all have."""
        reasons = [source.closed_because for source in self._sources if isinstance(source, LiveCatalog)]
        return next(filter(None, reasons), "")

    @property
    def invalidates(self) -> bool:
        """True if every source marks this view when it changes."""
        return self._invalidates

    @property
    def catalog(self) -> Catalog:
        """The derived catalog; the same object until something in it changes."""
        if not self._fresh:
            self._read_sources()
        return self._catalog

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call the listener with each difference of the derived catalog, until unsubscribed."""
        if not self._listeners:
            # Nobody was listening, so `_told` is old: the differences begin from the catalog of now.
            self._told = self.catalog
            self._upstream = tuple([source.subscribe(self._source_changed) for source in self._sources])
        inner = super().subscribe(listener)

        def unsubscribe() -> None:
            inner()
            if not self._listeners:
                for stop in self._upstream:
                    stop()
                self._upstream = ()

        return unsubscribe

    def _follow(self, sources: tuple[ToolExecutor, ...]) -> None:
        """Derive the catalog from these sources from now on."""
        for source in self._sources:
            if isinstance(source, LiveCatalog):
                source.remove_dependent(self)
        self._sources = sources
        for source in sources:
            if isinstance(source, LiveCatalog):
                source.add_dependent(self)
        self._fresh = False
        self.mark_followers()

    def _read_sources(self) -> None:
        current = tuple([source.catalog for source in self._sources])
        seen = self._seen
        if len(current) != len(seen) or any(new is not old for new, old in zip(current, seen, strict=True)):
            derived = self._derive(current)
            self._seen = current
            # The old object if nothing differs: views of this one compare by identity and need not derive again.
            self._catalog = self._catalog if _same(derived, self._catalog) else derived
        self._invalidates = all(isinstance(source, LiveCatalog) and source.invalidates for source in self._sources)
        self._fresh = self._invalidates

    def _source_changed(self, diff: CatalogDiff) -> None:
        before, self._told = self._told, self.catalog
        change = before.diff(self._told)
        if change:
            self._tell(change)


class MergedExecutor(_View):
    """One executor over several, in order; the first of a name wins. `join` replaces them while others follow it.

    With a `session`, calls through the executor and its views get contexts of this session, whatever they had before.
    `derive` reshapes the common catalog, at no cost of a view of its own.
    """

    def __init__(
        self,
        unknown: UnknownCalls,
        *executors: ToolExecutor,
        session: str | None = None,
        derive: Derive | None = None,
    ) -> None:
        if derive is None:
            super().__init__(unknown, executors, lambda catalogs: layer_catalogs(*catalogs), session)
        else:
            super().__init__(unknown, executors, lambda catalogs: derive(layer_catalogs(*catalogs)), session)

    def join(self, *executors: ToolExecutor) -> None:
        """Merge these executors from now on, and tell the listeners the difference."""
        self._follow(executors)
        if self._listeners:
            for stop in self._upstream:
                stop()
            self._upstream = tuple([source.subscribe(self._source_changed) for source in executors])
            # The difference given is not looked at: it is computed from what the listeners were told last.
            self._source_changed(CatalogDiff())


async def _run_traced(tool: Tool, call: ToolCall, context: CallContext) -> ToolResult:
    """Run a call in the spans of the tracers that plugins have when it begins."""
    plan, listed = tool.plan, tool.definition
    hooks = plan.hooks.current
    # Read again: the plugins may have gone since `execute` saw them.
    if hooks is None:
        return await run(plan, call, context)
    # Here as well as in `run`, since the spans end after it.
    hooks.calls.running += 1
    try:
        return await hooks.trace(listed, call, context, lambda context: run(plan, call, context, True, listed))
    finally:
        hooks.calls.leave()


def _looks_at(plan: Plan, context: CallContext) -> bool:
    """Return True if something of the plan reads the context; most tools do not, and save a new one."""
    return plan.wants_context or plan.needs_pipeline or context.idempotency_key is not None


def _same(new: Catalog | None, old: Catalog | None) -> bool:
    """Return True if every reader and caller finds the same in both."""
    if new is None or old is None:
        return new is old
    return (
        new.prefixes == old.prefixes
        and len(new) == len(old)
        and all(_is_same(a, b) for a, b in zip(new.values(), old.values(), strict=True))
        and _same(new.unavailable, old.unavailable)
    )


def _is_same(new: Tool, old: Tool) -> bool:
    return new is old or (
        new.plan is old.plan
        and new.definition.signature == old.definition.signature
        and new.definition.hosted == old.definition.hosted
    )
