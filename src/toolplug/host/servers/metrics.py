"""The state of MCP servers as Prometheus metrics, read when they are scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.discovery.known_server import ServerName
from toolplug.discovery.record import DiscoveryRecord, Status


class Counted(Protocol):
    """Servers as they are counted: `discoveries` that ended by server and outcome."""

    @property
    def names(self) -> Collection[ServerName]: ...
    @property
    def discoveries(self) -> Mapping[tuple[str, str], int]: ...
    def record(self, name: ServerName) -> DiscoveryRecord: ...


class ServerMetrics(Collector):
    """What discovery knows, and how it went. Servers that tenants added are counted together, under no name."""

    def __init__(self, running: Counted, namespace: str) -> None:
        self._running = running
        self._prefix = f"{namespace}_mcp"

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        records = [self._running.record(name) for name in self._running.names]
        servers = GaugeMetricFamily(
            f"{self._prefix}_servers", "MCP servers by the state of discovery.", labels=["status"]
        )
        states = Counter(record.status for record in records)
        for status in get_args(Status):
            servers.add_metric([status], states[status])
        yield servers
        stale = GaugeMetricFamily(f"{self._prefix}_servers_stale", "MCP servers whose tools are the last good ones.")
        stale.add_metric([], sum(record.stale for record in records))
        yield stale
        quarantined = GaugeMetricFamily(f"{self._prefix}_tools_quarantined", "Tools that wait to be accepted.")
        quarantined.add_metric([], sum(tool.quarantined for record in records for tool in record.tools))
        yield quarantined
        ended = CounterMetricFamily(
            f"{self._prefix}_discoveries", "Discoveries that ended, by outcome.", labels=["server", "outcome"]
        )
        for (server, outcome), count in tuple(self._running.discoveries.items()):
            ended.add_metric([server, outcome], count)
        yield ended

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names do not clash with a provider's, so nothing needs to be collected to find out."""
        return iter(())
