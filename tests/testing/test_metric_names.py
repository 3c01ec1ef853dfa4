"""The check of metric names agrees with Prometheus' own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

from toolplug.testing.provider_rules.metrics import metric_rules

pytestmark = pytest.mark.process

ROWS = [
    Counter("notes_written", "Notes written.", registry=None),
    Gauge("notes_kept", "Notes kept.", registry=None),
    Histogram("notes_search_seconds", "Time of a search.", registry=None),
    Gauge("keptNotes", "Notes kept.", registry=None),
    Gauge("notes_kept_total", "Notes kept.", registry=None),
    Gauge("notes_gauge", "Notes kept.", registry=None),
    Gauge("notes_wait_milliseconds", "Time of a wait.", registry=None),
    Gauge("notes_wait_ms", "Time of a wait.", registry=None),
    Gauge("notes_size_megabytes", "Size of notes.", registry=None),
    Gauge("notes_kept_count", "Notes kept.", registry=None),
    Gauge("notes_silent", "", registry=None),
]


def name_of(collector: Collector) -> Iterator[str]:
    yield from (family.name for family in collector.collect())


@pytest.mark.needs("promtool")
@pytest.mark.requirement("I2-9-check-provider")
@pytest.mark.parametrize("collector", ROWS, ids=lambda collector: next(name_of(collector)))
def test_a_metric_that_promtool_finds_fault_with_is_found_and_no_other(collector: Collector) -> None:
    registry = CollectorRegistry()
    registry.register(collector)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=generate_latest(registry), capture_output=True, check=False
    )
    assert bool(metric_rules([collector])) == (done.returncode != 0), done.stdout + done.stderr
