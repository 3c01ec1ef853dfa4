"""The provider's own metrics: what is in the index, what came in, and how searches went."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug_file_search.storage.database import Database

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_CONTENTS = (
    "SELECT tenant IS NULL, count(*), coalesce(sum(files.chunks), 0) FROM files JOIN corpora ON number = corpus "
    "WHERE files.chunks > 0 GROUP BY 1"
)


class Contents(Collector):
    """How much can be searched, counted in the index at each scrape; label `source`: `uploaded` or `local`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterator[Metric]:
        """The names alone, without a look at the index."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        """Raises `IndexUnavailable`."""
        found = {"uploaded": (0, 0), "local": (0, 0)}
        with self._database.reading() as connection:
            for local, documents, chunks in connection.execute(_CONTENTS):
                found["local" if local else "uploaded"] = (documents, chunks)
        for place, family in enumerate(self._families()):
            for source, numbers in found.items():
                family.add_metric([source], numbers[place])
            yield family

    def _families(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily("file_search_documents", "Files that can be searched.", labels=["source"]),
            GaugeMetricFamily("file_search_chunks", "Passages that can be searched.", labels=["source"]),
        )


class Measures:
    """What is counted while it happens."""

    def __init__(self) -> None:
        self._searches = Counter(
            "file_search_searches", "Searches by how they ended: found, nothing or failed.", ["outcome"], registry=None
        )
        self._seconds = Histogram("file_search_search_seconds", "Time of a search.", buckets=_SECONDS, registry=None)
        self._bytes = Counter("file_search_ingested_bytes", "Bytes of files that were taken in.", registry=None)

    def count_ingested(self, size: int) -> None:
        """A file of this size was taken in."""
        self._bytes.inc(size)

    @contextmanager
    def searching(self) -> Generator[list[object]]:
        """Count and time one search; what it finds is put into the list."""
        found: list[object] = []
        outcome, begin = "failed", perf_counter()
        try:
            yield found
            outcome = "found" if found else "nothing"
        finally:
            self._searches.labels(outcome).inc()
            self._seconds.observe(perf_counter() - begin)

    def collectors(self) -> Sequence[Collector]:
        return (self._searches, self._seconds, self._bytes)
