"""The metrics of a provider with several workers: sums of theirs, and counters that outlive each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.apart.metrics import ProcessMetrics, Series, rises, series_of


class WorkersMetrics(Collector):
    """The sum of what the workers have sent last; what only rises keeps what those that are gone had reached."""

    def __init__(self, key: str, present: Callable[[], int]) -> None:
        self._gone = ProcessMetrics(key)
        self._present = present
        self._workers: list[ProcessMetrics] = []
        self._key = key

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the names are not known before a worker has sent them."""
        return iter(())

    def add(self) -> ProcessMetrics:
        """Return what takes the metrics of one more worker."""
        worker = ProcessMetrics(self._key)
        self._workers.append(worker)
        return worker

    def remove(self, worker: ProcessMetrics) -> None:
        """Keep what a worker had reached that is gone."""
        self._workers.remove(worker)
        self._gone.update(_families(worker))
        self._gone.restart()

    def collect(self) -> Iterator[Metric]:
        """Yield each family, then the number of workers that are gone, and of those that are connected."""
        *gone, ended = self._gone.collect()
        yield from _sum([*gone, *(family for worker in self._workers for family in _families(worker))])
        yield ended
        workers = GaugeMetricFamily("toolplug_apart_workers", "Workers that have dialled in.")
        workers.add_metric([], self._present())
        yield workers


def _families(metrics: ProcessMetrics) -> list[Metric]:
    return list(metrics.collect())[:-1]


def _sum(families: Iterable[Metric]) -> list[Metric]:
    """Return one family of each name: its samples are sums over those with the same labels."""
    found: dict[str, Metric] = {}
    values: dict[str, dict[Series, int]] = {}
    for family in families:
        whole = found.setdefault(family.name, Metric(family.name, family.documentation, family.type, family.unit))
        places = values.setdefault(family.name, {})
        for sample in family.samples:
            series = series_of(sample)
            place = places.get(series)
            if place is None:
                places[series] = len(whole.samples)
                whole.samples.append(sample)
            elif rises(family, sample) or family.type == "gauge":
                known = whole.samples[place]
                whole.samples[place] = known._replace(value=known.value + sample.value)
    return list(found.values())
