"""The counters of sessions as Prometheus metrics, read when they are scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.execution.series import cumulated
from toolplug.sessions.service import Sessions


class SessionMetrics(Collector):
    """The metrics of one host's sessions; no code or token is a label."""

    def __init__(self, sessions: Sessions, namespace: str) -> None:
        self._sessions = sessions
        self._prefix = f"{namespace}_session"

    def collect(self) -> Iterator[Metric]:
        """Yield the families of sessions, streams, changes, events and the relay."""
        counters = self._sessions.counters
        yield self._live()
        yield self._streams()
        created = CounterMetricFamily(f"{self._prefix}_created", "Sessions that were created.")
        created.add_metric([], counters.created)
        yield created
        yield self._counted("ended", "Sessions that are over, by how they ended.", "reason", counters.ended)
        changes = CounterMetricFamily(
            f"{self._prefix}_changes", "Registrations and updates, by outcome.", labels=["kind", "outcome"]
        )
        for (kind, outcome), count in tuple(counters.changes.items()):
            changes.add_metric([kind, outcome], count)
        yield changes
        yield self._counted("events", "Events told to streams, each once.", "event", counters.events)
        yield self._counted("resyncs", "Streams that had to begin again.", "reason", counters.resyncs)
        yield from self._relay()

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names do not clash with a provider's, so nothing needs to be collected to find out."""
        return iter(())

    def _live(self) -> Metric:
        live = GaugeMetricFamily(f"{self._prefix}s", "Sessions by the state of their plugin.", labels=["plugin"])
        states = Counter(session.plugin_status for session in self._sessions.live)
        for status in ("attached", "waiting", "detached"):
            live.add_metric([status], states[status])
        return live

    def _streams(self) -> Metric:
        streams = GaugeMetricFamily(f"{self._prefix}_streams", "Open event streams.", labels=["role"])
        roles = Counter(reader.role for session in self._sessions.live for reader in session.feed.readers)
        for role in ("client", "plugin"):
            streams.add_metric([role], roles[role])
        return streams

    def _counted(self, name: str, text: str, label: str, counts: Counter[str]) -> Metric:
        family = CounterMetricFamily(f"{self._prefix}_{name}", text, labels=[label])
        for value, count in tuple(counts.items()):
            family.add_metric([value], count)
        return family

    def _relay(self) -> Iterator[Metric]:
        relayed = self._sessions.counters.relayed
        requests = CounterMetricFamily(
            f"{self._prefix}_relay_requests", "Requests to plugins, by how they ended.", labels=["outcome"]
        )
        for outcome, count in tuple(relayed.ended.items()):
            requests.add_metric([outcome], count)
        yield requests
        took = HistogramMetricFamily(
            f"{self._prefix}_relay_duration_seconds", "Time from the first sending of a request to its end."
        )
        took.add_metric([], cumulated(relayed.buckets), relayed.seconds)
        yield took
