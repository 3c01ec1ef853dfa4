"""What `/metrics` shows of tool calls, and how the host's own parts add to it.

prometheus-client, which takes 2 MB, is imported when the metrics are read, or when a plugin brings some of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import cast

from toolplug import library_types
from toolplug.execution.accounting import BUCKETS, DEFAULT_NAMESPACE, MAX_SERIES, CallAccounting
from toolplug.runtime.threads import import_in_thread


def cumulate(counts: list[int], bounds: Sequence[float] = BUCKETS) -> list[tuple[str, float]]:
    """Return `(upper bound, calls up to it)` for each bucket, as the exposition format of Prometheus has them."""
    return list(zip([*map(str, bounds), "+Inf"], map(float, accumulate(counts)), strict=True))


Counts = Iterable[tuple[str | tuple[str, ...], float]]
"""The value of the label, or those of all labels, and the number."""


def counter_family(name: str, text: str, labels: Sequence[str], counts: Counts) -> library_types.Metric:
    """Return a family of counters."""
    return _fill(library_types.CounterMetricFamily(name, text, labels=labels), counts)


def gauge_family(name: str, text: str, labels: Sequence[str], counts: Counts) -> library_types.Metric:
    """Return a family of gauges."""
    return _fill(library_types.GaugeMetricFamily(name, text, labels=labels), counts)


def _fill(
    family: library_types.CounterMetricFamily | library_types.GaugeMetricFamily, counts: Counts
) -> library_types.Metric:
    # A copy: a scrape runs in a thread while the loop counts on.
    for values, count in tuple(counts):
        family.add_metric([values] if isinstance(values, str) else values, count)
    return family


class UncheckedCollector(ABC):
    """A collector of the host's own, whose names cannot clash with a provider's."""

    @abstractmethod
    def collect(self) -> Iterator[library_types.Metric]:
        """Yield the families of one scrape."""

    def describe(self) -> Iterator[library_types.Metric]:
        """Return no families, so that registering does not collect."""
        return iter(())

    def as_collector(self) -> library_types.Collector:
        """Return it as the type that prometheus-client asks for, whose base class would have to be imported."""
        return cast("library_types.Collector", self)


class HostMetrics:
    """The metrics of one host: its own collectors, and from the first reading, or a collector of others, a registry."""

    def __init__(self) -> None:
        self._own: dict[UncheckedCollector, None] = {}
        self._registry: library_types.CollectorRegistry | None = None

    @property
    def registry(self) -> library_types.CollectorRegistry:
        """All of them, as prometheus-client has them."""
        if self._registry is None:
            self._registry = library_types.CollectorRegistry()
            for each in self._own:
                self._registry.register(each.as_collector())
        return self._registry

    async def load(self) -> library_types.CollectorRegistry:
        """Return `registry`, for which prometheus-client is imported in a thread."""
        await import_in_thread("prometheus_client.exposition")
        return self.registry

    def for_collectors(self) -> library_types.CollectorRegistry:
        """Return these metrics for who only adds collectors and removes them: nothing is imported for it."""
        return cast("library_types.CollectorRegistry", self)

    def register(self, collector: object) -> None:
        """Add a collector. Raises `ValueError` for one with names that are taken."""
        if self._registry is None and isinstance(collector, UncheckedCollector):
            self._own[collector] = None
        else:
            self.registry.register(cast("library_types.Collector", collector))

    def unregister(self, collector: object) -> None:
        """Remove a collector."""
        if self._registry is None and isinstance(collector, UncheckedCollector):
            del self._own[collector]
        else:
            self.registry.unregister(cast("library_types.Collector", collector))


class CallMetrics(UncheckedCollector):
    """The metrics of tool calls and provider routes, under a configurable namespace."""

    def __init__(self, accounting: CallAccounting, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._accounting = accounting
        self._namespace = namespace

    def collect(self) -> Iterator[library_types.Metric]:
        """Yield the families; label values are names from the configuration and statuses, never callers' text."""
        yield from self._tools()
        yield from self._routes()
        accounting, prefix = self._accounting, self._namespace
        yield counter_family(
            f"{prefix}_http_refusals", "Requests that the host refused.", ["code"], accounting.refusals.items()
        )
        yield counter_family(
            f"{prefix}_http_quota_refusals", "Requests over a quota, by quota.", ["quota"], accounting.quotas.items()
        )
        labels = ["provider", "tool_name", "rule"]
        yield counter_family(
            f"{prefix}_watched", "Calls that a watched rule would have denied.", labels, accounting.watched.items()
        )

    def _tools(self) -> Iterator[library_types.Metric]:
        labels = ["provider", "tool_name"]
        prefix = f"{self._namespace}_builtin_tool"
        ended = library_types.CounterMetricFamily(
            f"{prefix}_executions", "Tool calls that ended.", labels=[*labels, "status"]
        )
        took = library_types.HistogramMetricFamily(
            f"{prefix}_duration_seconds", "Time from call to answer.", labels=labels
        )
        running = library_types.GaugeMetricFamily(
            f"{prefix}_in_flight", "Tools that run now, abandoned ones too.", labels=labels
        )
        every = [item for item in self._accounting.all_counters() if item.listed or item.ended or item.in_flight]
        for counters in every[:MAX_SERIES]:
            names = [counters.provider, counters.tool_name]
            for status, count in tuple(counters.ended.items()):
                ended.add_metric([*names, status], count)
            took.add_metric(names, cumulate(counters.buckets), counters.seconds)
            running.add_metric(names, counters.in_flight)
        text = f"Tools past the first {MAX_SERIES}, which have no lines of their own here."
        capped = gauge_family(f"{prefix}_series_capped", text, [], [((), max(len(every) - MAX_SERIES, 0))])
        by_gate: Counter[tuple[str, str]] = Counter()
        for counters in every:
            for gate, count in tuple((counters.refusals or {}).items()):
                by_gate[counters.provider, gate] += count
        limited = counter_family(
            f"{prefix}_limited", "Calls that were limited, by what refused them.", ["provider", "gate"], by_gate.items()
        )
        return iter((ended, took, running, capped, limited))

    def _routes(self) -> Iterator[library_types.Metric]:
        labels = ["provider", "method", "path"]
        prefix = f"{self._namespace}_builtin_api"
        ended = library_types.CounterMetricFamily(
            f"{prefix}_requests", "Requests of provider routes.", labels=[*labels, "status"]
        )
        took = library_types.HistogramMetricFamily(
            f"{prefix}_duration_seconds", "Time from request to response.", labels=labels
        )
        for (provider, method, path), counters in self._accounting.every_route():
            for status, count in tuple(counters.ended.items()):
                ended.add_metric([provider, method, path, status], count)
            took.add_metric([provider, method, path], cumulate(counters.buckets), counters.seconds)
        return iter((ended, took))
