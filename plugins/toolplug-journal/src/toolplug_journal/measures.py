"""The journal's own metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug_journal.database import Database

Outcome = Literal["kept", "failed", "dropped"]


class Measures:
    """What is counted while it happens; from any thread."""

    def __init__(self) -> None:
        self._entries = Counter(
            "journal_entries",
            "Beginnings and ends of calls, and decisions, by what became of them: kept, failed or dropped.",
            ["outcome"],
            registry=None,
        )

    def entries(self, outcome: Outcome, count: int) -> None:
        """So many entries had this outcome."""
        self._entries.labels(outcome).inc(count)

    def collectors(self) -> Sequence[Collector]:
        return (self._entries,)


class Contents(Collector):
    """How many calls and decisions are in the journal, counted at each scrape. Raises `sqlite3.Error`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterator[Metric]:
        """The name alone, without a look at the file."""
        yield GaugeMetricFamily("journal_calls", "Calls and decisions that are in the journal.")

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "journal_calls", "Calls and decisions that are in the journal.", value=self._database.count()
        )
