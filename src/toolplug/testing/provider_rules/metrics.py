"""A provider's own metrics: collected twice, named as Prometheus wants them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.testing.broken_rule import BrokenRule

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ABBREVIATED = ("_ms", "_milliseconds", "_us", "_minutes", "_hours", "_kb", "_mb", "_kilobytes", "_megabytes")
_RESERVED = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
_TYPES = ("counter", "gauge", "histogram", "summary")
_OURS = "antwort_builtin_"


def metric_rules(collectors: Sequence[Collector]) -> list[BrokenRule]:
    """The rules of everything that the collectors give; each is collected twice, as two scrapes would."""
    broken: list[BrokenRule] = []
    seen: dict[str, Collector] = {}
    for collector in collectors:
        where = f"collector {type(collector).__qualname__}"
        try:
            families, _ = list(collector.collect()), list(collector.collect())
        except Exception as error:  # noqa: BLE001  what a collector raises is what is looked for
            said = f"collect() raised {type(error).__name__}: {error}"
            broken.append(BrokenRule("collectors", where, said, "a scrape would lose its lines"))
            continue
        for family in families:
            if seen.setdefault(family.name, collector) is not collector:
                fix = "give each family to one collector"
                broken.append(BrokenRule("collectors", f"metric {family.name!r}", "comes from two collectors", fix))
            broken += [BrokenRule("metric-names", f"metric {family.name!r}", *found) for found in _lint(family)]
    return broken


def _lint(family: Metric) -> Iterator[tuple[str, str]]:
    """What `promtool check metrics` would say, and what is wrong with it for a host: each with its fix."""
    name = family.name
    if not _NAME.fullmatch(name):
        yield "has a name that is not lower_case_with_underscores", "rename it"
    if name.startswith(_OURS):
        yield f"begins with {_OURS}, which is the host's", "begin with the package's own name"
    if not family.documentation.strip():
        yield "has no help text", "say what it counts"
    if name.endswith(_ABBREVIATED):
        yield "is not in a base unit", "use seconds or bytes"
    if name.endswith(_RESERVED):
        yield "ends as its samples do", "leave the ending out: the client library adds it"
    if any(name.endswith(f"_{kind}") or f"_{kind}_" in name for kind in _TYPES):
        yield "has its type in its name", "leave the type out"
    if any("provider" in sample.labels for sample in family.samples):
        yield "has a label 'provider', which the host adds", "call the label something else"
