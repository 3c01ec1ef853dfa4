"""The executor of one session's own tools."""

from __future__ import annotations

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.plan import Series
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.live import Joint, LiveCatalog


class LentTools(Joint):
    """What a plugin has registered; the default tools, where there are any, until it registers."""

    def __init__(self, unknown: Series, default: ToolExecutor | None) -> None:
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
