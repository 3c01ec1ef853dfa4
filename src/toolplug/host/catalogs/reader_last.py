"""Where `read_result` stands in a caller's catalog: last, and only where results of any tool in it are kept."""

from __future__ import annotations

from collections.abc import Callable

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.kept import Kept
from toolplug.catalog.layers import layered
from toolplug.execution.artifacts import SOURCE


class ReaderLast:
    """Divides catalogs into their tools and the reader of kept results; `reader()` is that one tool."""

    def __init__(self, reader: Callable[[], Catalog]) -> None:
        self._reader = reader
        self.body: Kept = Kept(_without_reader)
        self.tail: Kept = Kept(self.reader_for)
        self.whole: Kept = Kept(lambda catalog: layered(self.body(catalog), self.tail(catalog)))

    def reader_for(self, catalog: Catalog) -> Catalog:
        """The reader where a result of these tools may be kept, else nothing."""
        return self._reader() if any(tool.plan.artifacts for tool in catalog.values()) else EMPTY_CATALOG


def _without_reader(catalog: Catalog) -> Catalog:
    return catalog.where(lambda tool: tool.definition.ref.source != SOURCE)
