"""The one implementation of a tool executor: a current catalog that can be swapped, and views of it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from weakref import WeakSet

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog, CatalogDiff, merged
from toolplug.catalog.plan import Series, Tool
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
        self._listeners: dict[object, Listener] = {}
        self._pending: deque[tuple[CatalogDiff, tuple[object, ...]]] = deque()
        self._telling = False
        self._followers: WeakSet[_View] = WeakSet()

    @property
    def catalog(self) -> Catalog:
        """The current catalog; the same object while nothing changed."""
        return self._catalog

    @property
    def marks(self) -> bool:
        """Does it tell its views of every change."""
        return True

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
        subscription = object()
        self._listeners[subscription] = listener

        def unsubscribe() -> None:
            self._listeners.pop(subscription, None)

        return unsubscribe

    def publish(self, catalog: Catalog) -> CatalogDiff:
        """Make this the current catalog; listeners hear what changed."""
        before, self._catalog = self._catalog, catalog
        self.mark_followers()
        diff = before.diff(catalog)
        if diff:
            self._tell(diff)
        return diff

    def view(self, derive: Derive) -> LiveCatalog:
        """An executor over a pure function of this one's catalog, which never raises; follows it at once."""
        return _View(self._unknown, (self,), lambda catalogs: derive(catalogs[0]))

    def followed_by(self, view: _View) -> None:
        """Mark this view when the catalog changes; forgets it when nobody else holds it."""
        self._followers.add(view)

    def left_by(self, view: _View) -> None:
        """Mark this view no more."""
        self._followers.discard(view)

    def mark_followers(self) -> None:
        """The catalog is not what the views of it were derived from."""
        for view in self._followers:
            view.mark()

    def _tell(self, diff: CatalogDiff) -> None:
        """Tell whoever listens now, after what they have still to hear."""
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
            if listener is None:
                continue
            try:
                listener(diff)
            except Exception:  # noqa: BLE001  a named boundary: one listener never costs another its event
                _LOG.exception("a listener of a catalog raised; the others hear the change all the same")


class _View(LiveCatalog):
    """A catalog derived from others: marked when one of them changes, and derived again when it is next read.

    It listens to its sources only while somebody listens to it, so a view that is dropped leaves nothing behind.
    Sources that are no `LiveCatalog` cannot mark it: they are compared at each read.
    """

    def __init__(
        self, unknown: Series, sources: tuple[ToolExecutor, ...], derive: Callable[[tuple[Catalog, ...]], Catalog]
    ) -> None:
        super().__init__(unknown)
        self._sources: tuple[ToolExecutor, ...] = ()
        self._derive = derive
        self._seen: tuple[Catalog, ...] = ()
        self._marked = True
        self._upstream: list[Unsubscribe] = []
        self._told = EMPTY_CATALOG
        self._marks = False
        self._follow(sources)

    @property
    def marks(self) -> bool:
        """Is every change of the sources known without asking them."""
        return self._marks

    @property
    def catalog(self) -> Catalog:
        """The derived catalog; the same object while nothing in it changed."""
        if self._marked or not self._marks:
            self._read_sources()
        return self._catalog

    def mark(self) -> None:
        """One of the sources changed."""
        if not self._marked:
            self._marked = True
            self.mark_followers()

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

    def _follow(self, sources: tuple[ToolExecutor, ...]) -> None:
        """Be derived from these from now on."""
        for source in self._sources:
            if isinstance(source, LiveCatalog):
                source.left_by(self)
        self._sources = sources
        for source in sources:
            if isinstance(source, LiveCatalog):
                source.followed_by(self)
        self.mark()

    def _read_sources(self) -> None:
        self._marked = False
        current = tuple([source.catalog for source in self._sources])
        self._marks = all(isinstance(source, LiveCatalog) and source.marks for source in self._sources)
        seen = self._seen
        if len(current) == len(seen) and all(new is old for new, old in zip(current, seen, strict=True)):
            return
        try:
            derived = self._derive(current)
        except BaseException:
            self._marked = True
            raise
        self._seen = current
        self._catalog = self._catalog if _same(derived, self._catalog) else derived

    def _source_changed(self, diff: CatalogDiff) -> None:
        before, self._told = self._told, self.catalog
        change = before.diff(self._told)
        if change:
            self._tell(change)


class Joint(_View):
    """One executor over several, in order; the first of a name wins. Which ones may change while others follow it."""

    def __init__(self, unknown: Series, *executors: ToolExecutor) -> None:
        super().__init__(unknown, executors, lambda catalogs: merged(catalogs)[0])

    def join(self, *executors: ToolExecutor) -> None:
        """Be these executors from now on; listeners hear what that changes."""
        self._follow(executors)
        if self._listeners:
            for stop in self._upstream:
                stop()
            self._upstream = [source.subscribe(self._source_changed) for source in executors]
            self._source_changed(CatalogDiff())


def joined(unknown: Series, *executors: ToolExecutor) -> LiveCatalog:
    """One executor over several, in order; the first of a name wins."""
    return _View(unknown, executors, lambda catalogs: merged(catalogs)[0])


def _same(new: Catalog, old: Catalog) -> bool:
    """Would every reader and every caller find the same."""
    return (
        new.prefixes == old.prefixes
        and len(new) == len(old)
        and all(_is_same(a, b) for a, b in zip(new.values(), old.values(), strict=True))
    )


def _is_same(new: Tool, old: Tool) -> bool:
    return new is old or (
        new.plan is old.plan
        and new.definition.signature == old.definition.signature
        and new.definition.hosted == old.definition.hosted
    )
