"""The providers' own collectors at `/metrics`. One that raises or hangs loses only its own metrics."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import NamedTuple

from toolplug import library_types
from toolplug.crashes import CodeOwner, log_crash
from toolplug.execution.metrics import UncheckedCollector, counter_family
from toolplug.runtime.threads import begun_in_own_thread

_LOG = logging.getLogger("toolplug.providers")

FINDING: Mapping[str, object] = MappingProxyType({"finding": True})
"""The `extra` of log lines that `toolplug doctor` leaves out: it has them as findings."""

_OWN = ("builtin_", "session_", "sessions", "mcp_", "http_", "build_info", "config_", "store_", "approvals_", "worker_")
"""What the names of the host's own metrics begin with, after the namespace."""

_MOST_LEFT_OUT = 100
"""Names of metrics that are noted as left out."""
COLLECT_S = 2.0
"""How long one collector may take; a scraper waits for 10 s as a rule."""


class Collected(NamedTuple):
    """The collectors of one active provider; `labelled` if its type is configured under several keys."""

    owner: CodeOwner
    labelled: bool
    collectors: Sequence[library_types.Collector]


class LeftOut(NamedTuple):
    """A metric family of a provider that is omitted, as its name begins with a prefix of the host's own metrics."""

    key: str
    family: str
    prefix: str


class ProviderCollectors(UncheckedCollector):
    """A collector for the collectors of all active providers, which are read at each scrape.

    Families of one name are merged; with `labelled`, or if two providers have one name, their samples get the label
    `provider`. Families with a prefix of the host are omitted: `left_out` has them, and the log names each once.
    """

    def __init__(
        self, active: Callable[[], Iterable[Collected]], namespace: str, *, within_s: float = COLLECT_S
    ) -> None:
        self._active = active
        self._namespace = namespace
        self._within_s = within_s
        self._errors: Counter[str] = Counter()
        self.left_out: dict[LeftOut, None] = {}
        # By the collector's id: its thread keeps it alive.
        self._asked: dict[int, Future[list[library_types.Metric]]] = {}

    def collect(self) -> Iterator[library_types.Metric]:
        """Yield each family once, then the number of errors."""
        found: dict[str, list[tuple[Collected, library_types.Metric]]] = {}
        for active in self._active():
            for collector in active.collectors:
                # All are read before the first is yielded: families of one name must come together in the exposition
                # format.
                for family in self._families(active, collector):
                    found.setdefault(family.name, []).append((active, family))
        yield from map(_merge, found.values())
        name, text = f"{self._namespace}_builtin_collector_errors", "Scrapes that a provider's collector failed."
        yield counter_family(name, text, ["provider"], self._errors.items())

    def _families(self, active: Collected, collector: library_types.Collector) -> list[library_types.Metric]:
        try:
            return [
                family for family in self._asked_in_time(collector) if self._is_theirs(active.owner.key, family.name)
            ]
        # SystemExit as well: a scrape runs in a thread, where it would end that without a word.
        except BaseException as error:  # noqa: BLE001  one collector never costs the scrape
            self._errors[active.owner.key] += 1
            if id(collector) in self._asked:
                seconds = self._within_s
                _LOG.error("a collector of %s has not ended after %g s; its lines are left out", active.owner, seconds)
            else:
                log_crash("a collector", error, active.owner, then="its lines are left out")
            return []

    def _is_theirs(self, key: str, family: str) -> bool:
        own = next((name for part in _OWN if family.startswith(name := f"{self._namespace}_{part}")), None)
        if own is None:
            return True
        found = LeftOut(key, family, own)
        # The names of a process may differ at each scrape.
        if found not in self.left_out and len(self.left_out) < _MOST_LEFT_OUT:
            self.left_out[found] = None
            text = "the metric %r of provider %r is left out: names that begin with %r are the host's own"
            _LOG.warning(text, family, key, own, extra=FINDING)
        return False

    def _asked_in_time(self, collector: library_types.Collector) -> list[library_types.Metric]:
        """Return the families of a collector. One that still hangs since an earlier scrape is not called again."""
        asked = self._asked.get(id(collector))
        if asked is None or asked.done():
            # A thread of its own: a collector that hangs would keep the next scrape waiting in any pool.
            asked = begun_in_own_thread(lambda: list(collector.collect()))
            self._asked[id(collector)] = asked
        try:
            return asked.result(self._within_s)
        finally:
            if asked.done():
                self._asked.pop(id(collector), None)


def _merge(given: Sequence[tuple[Collected, library_types.Metric]]) -> library_types.Metric:
    """Return one family of families of one name."""
    first = given[0][1]
    # A new one: the collector may return the same object at each scrape.
    whole = library_types.Metric(first.name, first.documentation, first.type, first.unit)
    shared = len({active.owner.key for active, _ in given}) > 1
    for active, family in given:
        # A label of this name that a sample has itself might be another provider's key.
        labels = {"provider": active.owner.key} if active.labelled or shared else {}
        whole.samples.extend(sample._replace(labels={**sample.labels, **labels}) for sample in family.samples)
    return whole
