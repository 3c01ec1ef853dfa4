"""The one implementation of a tool executor: a current catalog that can be swapped, and views of it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog, CatalogDiff, merged
from toolplug.catalog.plan import Series
from toolplug.execution.executor import Listener, ToolExecutor, Unsubscribe
from toolplug.execution.run import run, unknown_tool

_LOG = logging.getLogger("toolplug.execution")

Derive = Callable[[Catalog], Catalog]


class LiveCatalog:
    """A tool executor over the current catalog.

    `unknown` counts the calls of names that are not listed. A source calls `publish`; `view` and `joined` make
    executors that follow others.
    """

    def __init__(self, unknown: Series, catalog: Catalog = EMPTY_CATALOG) -> None:
        self._unknown = unknown
        self._catalog = catalog
        self._listeners: list[Listener] = []
        self._pending: deque[CatalogDiff] = deque()

    @property
    def catalog(self) -> Catalog:
        """The current catalog; the same object while nothing changed."""
        return self._catalog

    def can_execute(self, name: str) -> bool:
        """True for exactly the names in the catalog, canonical or wire."""
        return self.catalog.find(name) is not None

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Run one call by the plan that the current catalog has for its name."""
        catalog = self.catalog
        tool = catalog.find(call.name)
        if tool is None:
            self._unknown.record("unknown_tool", 0.0)
            return unknown_tool(call, catalog.unknown(call.name), context)
        return await run(tool.plan, call, context)

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Hear each difference, in order and never from within another."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def publish(self, catalog: Catalog) -> CatalogDiff:
        """Make this the current catalog; listeners hear what changed."""
        before, self._catalog = self._catalog, catalog
        diff = before.diff(catalog)
        if diff:
            self._tell(diff)
        return diff

    def view(self, derive: Derive) -> LiveCatalog:
        """An executor over a pure function of this one's catalog; follows it at once."""
        return _View(self._unknown, (self,), lambda catalogs: derive(catalogs[0]))

    def _tell(self, diff: CatalogDiff) -> None:
        self._pending.append(diff)
        if len(self._pending) > 1:
            return
        while self._pending:
            for listener in tuple(self._listeners):
                try:
                    listener(self._pending[0])
                except Exception:  # noqa: BLE001  a named boundary: one listener never costs another its event
                    _LOG.exception("a listener of a catalog raised; the others hear the change all the same")
            self._pending.popleft()


class _View(LiveCatalog):
    """A catalog derived from others when it is read, and again when one of them has changed since.

    It listens to its sources only while somebody listens to it, so a view that is dropped leaves nothing behind.
    """

    def __init__(
        self, unknown: Series, sources: tuple[ToolExecutor, ...], derive: Callable[[tuple[Catalog, ...]], Catalog]
    ) -> None:
        super().__init__(unknown)
        self._sources = sources
        self._derive = derive
        self._seen: tuple[Catalog, ...] = ()
        self._upstream: list[Unsubscribe] = []

    @property
    def catalog(self) -> Catalog:
        """The derived catalog; the same object while no source changed."""
        current = tuple([source.catalog for source in self._sources])
        seen = self._seen
        if len(current) != len(seen) or any(new is not old for new, old in zip(current, seen, strict=True)):
            derived = self._derive(current)
            self._seen = current
            self._catalog = self._catalog if _same(derived, self._catalog) else derived
        return self._catalog

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Hear each difference of the derived catalog."""
        if not self._listeners:
            self._told = self.catalog
            self._upstream = [source.subscribe(self._source_changed) for source in self._sources]
        inner = super().subscribe(listener)

        def unsubscribe() -> None:
            inner()
            if not self._listeners:
                for stop in self._upstream:
                    stop()
                self._upstream = []

        return unsubscribe

    def _source_changed(self, diff: CatalogDiff) -> None:
        before, self._told = self._told, self.catalog
        change = before.diff(self._told)
        if change:
            self._tell(change)


def joined(unknown: Series, *executors: ToolExecutor) -> LiveCatalog:
    """One executor over several, in order; the first of a name wins."""
    return _View(unknown, executors, lambda catalogs: merged(catalogs)[0])


def _same(new: Catalog, old: Catalog) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new.values(), old.values(), strict=True))
