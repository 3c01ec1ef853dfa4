"""The views that callers ask for with every request: made once while they are in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

from toolplug.execution.live import LiveCatalog

_NEWEST = 1_000


class RecentViews:
    """One view for each key: as long as anybody holds it, and the newest few also when nobody does."""

    def __init__(self) -> None:
        self._views: WeakValueDictionary[Hashable, LiveCatalog] = WeakValueDictionary()
        self._newest: OrderedDict[Hashable, LiveCatalog] = OrderedDict()

    def view(self, key: Hashable, make: Callable[[], LiveCatalog]) -> LiveCatalog:
        """The view of this key, made where there is none."""
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = make()
        self._newest[key] = view
        self._newest.move_to_end(key)
        if len(self._newest) > _NEWEST:
            self._newest.popitem(last=False)
        return view
