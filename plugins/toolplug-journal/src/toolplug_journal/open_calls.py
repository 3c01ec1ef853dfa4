"""The calls that have begun and not ended, as the hooks see them."""

from __future__ import annotations

from collections import OrderedDict
from time import perf_counter
from typing import NamedTuple

from toolplug import ToolCall
from toolplug_journal.entry import Entry

MAX_OPEN = 2_000


class _Open(NamedTuple):
    call: ToolCall
    entry: Entry
    began: float


class OpenCalls:
    """Finds the entry of a call again by the call itself: the ids that models give are not unique.

    A call whose caller went away never ends here; the oldest are forgotten beyond 2,000.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[int, _Open] = OrderedDict()

    def begin(self, call: ToolCall, entry: Entry) -> None:
        """Remember when this call began. The call is kept, so that no other has its identity meanwhile."""
        self._open[id(call)] = _Open(call, entry, perf_counter())
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def end(self, call: ToolCall) -> tuple[Entry, float] | None:
        """Its entry and how many seconds it took; None for a call that did not begin here."""
        found = self._open.pop(id(call), None)
        return None if found is None else (found.entry, perf_counter() - found.began)
