"""The counters of a host as Prometheus metrics, read when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.execution.ledger import Ledger
from toolplug.execution.series import cumulated

DEFAULT_NAMESPACE = "antwort"
MAX_SERIES = 2_000
"""Tools with lines of their own: a scrape of 10,000 takes seconds (HAZARDS.md)."""


class CallMetrics(Collector):
    """The metrics of tool calls and provider routes, under a configurable namespace."""

    def __init__(self, ledger: Ledger, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._ledger = ledger
        self._namespace = namespace

    def collect(self) -> Iterator[Metric]:
        """Yield the seven families; label values are names of our own only."""
        yield from self._tools()
        yield from self._routes()
        yield self._refusals()

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names do not clash with a provider's, so nothing needs to be collected to find out."""
        return iter(())

    def _tools(self) -> Iterator[Metric]:
        labels = ["provider", "tool_name"]
        prefix = f"{self._namespace}_builtin_tool"
        ended = CounterMetricFamily(f"{prefix}_executions", "Tool calls that ended.", labels=[*labels, "status"])
        took = HistogramMetricFamily(f"{prefix}_duration_seconds", "Time from call to answer.", labels=labels)
        running = GaugeMetricFamily(f"{prefix}_in_flight", "Tools that run now, abandoned ones too.", labels=labels)
        every = self._ledger.every_series()
        for series in every[:MAX_SERIES]:
            names = [series.provider, series.tool_name]
            for status, count in tuple(series.ended.items()):
                ended.add_metric([*names, status], count)
            took.add_metric(names, cumulated(series.buckets), series.seconds)
            running.add_metric(names, series.in_flight)
        capped = GaugeMetricFamily(
            f"{prefix}_series_capped", f"Tools past the first {MAX_SERIES}, which have no lines of their own here."
        )
        capped.add_metric([], max(len(every) - MAX_SERIES, 0))
        return iter((ended, took, running, capped))

    def _routes(self) -> Iterator[Metric]:
        labels = ["provider", "method", "path"]
        prefix = f"{self._namespace}_builtin_api"
        ended = CounterMetricFamily(f"{prefix}_requests", "Requests of provider routes.", labels=[*labels, "status"])
        took = HistogramMetricFamily(f"{prefix}_duration_seconds", "Time from request to response.", labels=labels)
        for (provider, method, path), series in self._ledger.every_route():
            for status, count in tuple(series.ended.items()):
                ended.add_metric([provider, method, path, status], count)
            took.add_metric([provider, method, path], cumulated(series.buckets), series.seconds)
        return iter((ended, took))

    def _refusals(self) -> Metric:
        refused = CounterMetricFamily(
            f"{self._namespace}_http_refusals", "Requests that the host refused.", labels=["code"]
        )
        for code, count in self._ledger.every_refusal():
            refused.add_metric([code], count)
        return refused
