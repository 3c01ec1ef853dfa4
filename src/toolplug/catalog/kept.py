"""Answers about catalogs that are kept while the catalogs are in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from toolplug.catalog.catalog import Catalog

_NEWEST = 64


class Kept:
    """A pure function of a catalog; asked twice about one catalog, it gives the same object, for the newest few."""

    def __init__(self, function: Callable[[Catalog], Catalog]) -> None:
        self._function = function
        self._answers: OrderedDict[int, tuple[Catalog, Catalog]] = OrderedDict()

    def __call__(self, catalog: Catalog) -> Catalog:
        kept = self._answers.get(id(catalog))
        if kept is None:
            kept = self._answers[id(catalog)] = (catalog, self._function(catalog))
            if len(self._answers) > _NEWEST:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(id(catalog))
        return kept[1]
