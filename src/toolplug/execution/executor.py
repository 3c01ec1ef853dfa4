"""What every host sees of tools, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog, CatalogDiff

Listener = Callable[[CatalogDiff], None]
Unsubscribe = Callable[[], None]


@runtime_checkable
class ToolExecutor(Protocol):
    """A live catalog. The registry, a toolset, an agent's view and a session are one, and a host cannot tell which.

    Hold executors, not catalogs: the next call must see what was disabled or revoked since.
    """

    @property
    def catalog(self) -> Catalog:
        """The current catalog; the same object while nothing changed. Reading it does no I/O."""
        ...

    def can_execute(self, name: str) -> bool:
        """True for exactly the names in the catalog (canonical or wire)."""
        ...

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Run one call. Every failure is a result; only the caller's own cancellation escapes."""
        ...

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Hear each difference, in order and never from within another; a listener that raises is logged."""
        ...
