"""The metrics of a provider in a process of its own: its families as JSON, and counters that outlive a restart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import METRIC_TYPES, Metric
from prometheus_client.registry import Collector

from toolplug.apart.limits import MAX_FAMILIES, MAX_LABELS, MAX_SAMPLES, PIECE_SAMPLES

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
"""Those that begin with `__` are Prometheus's own: one of them is the name of the sample."""
_SUFFIXES = frozenset(("", "_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount", "_gsum"))
_MAX_HELP = 1_000
_RISING = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
"""The samples that only rise, by the type of their family."""
_CREATED = "_created"

Series = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a sample with its labels."""


def encode_families(families: Iterable[Metric]) -> list[object]:
    """Return families as JSON; numbers are texts, as JSON has neither NaN nor infinity."""
    return [
        [
            family.name,
            family.documentation,
            family.type,
            family.unit,
            [[sample.name, dict(sample.labels), repr(float(sample.value))] for sample in family.samples],
        ]
        for family in families
    ]


def cut_families(families: Sequence[Any]) -> list[Sequence[object]]:
    """Return families, as `encode_families` returns them, in pieces for messages; there is one at least."""
    if sum(len(each[4]) for each in families) <= PIECE_SAMPLES:
        return [families]
    return [
        [[*each[:4], each[4][start : start + PIECE_SAMPLES]]]
        for each in families
        for start in range(0, max(len(each[4]), 1), PIECE_SAMPLES)
    ]


class FamilyReader:
    """Reads the families that a process sends, in one message or several.

    Those whose names would break the text format, or be read as samples of the host, are left out, and what is too much
    is as well. The parts of one family follow each other.
    """

    def __init__(self) -> None:
        self.families: list[Metric] = []
        self._budget = _SampleBudget()

    def add(self, given: Any) -> None:
        """Read a message. Raises one of `NOT_VALID` if it has none."""
        for name, documentation, kind, unit, samples in given:
            if not _NAME.fullmatch(name) or kind not in METRIC_TYPES:
                continue
            found = self.families
            if not found or (found[-1].name, found[-1].type) != (name, kind):
                if len(found) == MAX_FAMILIES:
                    return
                found.append(Metric(name, str(documentation)[:_MAX_HELP], kind, ""))
            family = found[-1]
            family.unit = str(unit) if unit and name.endswith(f"_{unit}") else ""
            for sample, labels, value in samples:
                # Of a family `a` there is no sample `another`: that may be the name of one of the host's.
                if sample.startswith(name) and sample[len(name) :] in _SUFFIXES and all(map(_LABEL.fullmatch, labels)):
                    texts = {key: str(text) for key, text in labels.items()}
                    if self._budget.takes(texts):
                        family.add_sample(sample, texts, float(value))


def decode_families(given: Any) -> list[Metric]:
    """Return the families of one message of a process. Raises one of `NOT_VALID` if it has none."""
    reader = FamilyReader()
    reader.add(given)
    return reader.families


class _SampleBudget:
    """What is left of the bounds of one process's samples."""

    def __init__(self) -> None:
        self._samples = MAX_SAMPLES
        self._text = MAX_LABELS

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether there is room for one more sample, which then has it."""
        size = sum(map(len, labels)) + sum(map(len, labels.values()))
        if not self._samples or size > self._text:
            return False
        self._samples -= 1
        self._text -= size
        return True


class ProcessMetrics(Collector):
    """The families that a process has sent last; what only rises goes on from where an earlier process ended."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._families: dict[str, Metric] = {}
        self._before: dict[str, Metric] = {}
        self._reached: dict[Series, float] = {}
        self.restarts: int = 0

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the names are not known before the process has sent them."""
        return iter(())

    def update(self, families: Iterable[Metric]) -> None:
        """Replace the families by newer ones of the same process."""
        self._families = {family.name: family for family in families}

    def restart(self) -> None:
        """Take note that a new process follows, whose counters begin at nothing."""
        self.restarts += 1
        kept, budget = list(self.collect())[:-1], _SampleBudget()
        for family in kept:
            # Those of the process that has ended come first. One with other labels in each would fill the memory.
            family.samples = [each for each in family.samples if _rises(family, each) and budget.takes(each.labels)]
        kept = [family for family in kept if family.samples][:MAX_FAMILIES]
        self._reached = {_series_of(sample): sample.value for family in kept for sample in family.samples}
        self._before = {family.name: family for family in kept}
        self._families = {}

    def collect(self) -> Iterator[Metric]:
        """Yield each family, then the number of restarts."""
        families = self._families
        for name in dict.fromkeys((*families, *self._before)):
            yield self._whole(families.get(name), self._before.get(name))
        restarts = CounterMetricFamily("toolplug_apart_restarts", "Restarts of the process of a provider.")
        restarts.add_metric([], self.restarts)
        yield restarts

    def _whole(self, now: Metric | None, before: Metric | None) -> Metric:
        """Return a family with what an earlier process had reached."""
        like = now or before
        if like is None or before is None:
            return like or Metric(self._key, "", "unknown")
        whole = Metric(like.name, like.documentation, like.type, like.unit)
        seen: Mapping[Series, Any] = {_series_of(sample): sample for sample in (now.samples if now else ())}
        for series, sample in seen.items():
            more = self._reached.get(series, 0.0) if _rises(like, sample) else 0.0
            whole.samples.append(sample._replace(value=sample.value + more))
        # A series that the new process has not had yet must not vanish: it would be reset by the next one.
        whole.samples.extend(
            sample for sample in before.samples if _rises(before, sample) and _series_of(sample) not in seen
        )
        return whole


def _series_of(sample: Any) -> Series:
    """Return what tells a sample from the others of its scrape."""
    return sample.name, tuple(sorted(sample.labels.items()))


def _rises(family: Metric, sample: Any) -> bool:
    """Return whether the value of a sample never falls while its process runs."""
    return sample.name.endswith(_RISING.get(family.type, ())) and not sample.name.endswith(_CREATED)


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
            series = _series_of(sample)
            place = places.get(series)
            if place is None:
                places[series] = len(whole.samples)
                whole.samples.append(sample)
            elif _rises(family, sample) or family.type == "gauge":
                known = whole.samples[place]
                whole.samples[place] = known._replace(value=known.value + sample.value)
    return list(found.values())
