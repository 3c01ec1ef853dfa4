"""Rules for metrics: names, what a scrape of the host has, and labels that grow with the callers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.catalog.exact_json import as_object
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.routes import FILLED
from toolplug.testing.provider_rules.subject import CALL_ID, Started

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ABBREVIATED = ("_ms", "_milliseconds", "_us", "_minutes", "_hours", "_kb", "_mb", "_kilobytes", "_megabytes")
_RESERVED = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
_TYPES = ("counter", "gauge", "histogram", "summary")
# The usual namespace of hosts, `DEFAULT_NAMESPACE`.
_OURS = "antwort_builtin_"
_METRICS = (Counter, Gauge, Histogram, Summary, Info, Enum)
_SHORT = 3
"""Characters of the longest value of an argument that is not looked for in labels: too many things are called so."""


def metric_rules(collectors: Sequence[Collector]) -> list[BrokenRule]:
    """Check the metrics of the collectors; each is collected twice, as by two scrapes."""
    broken: list[BrokenRule] = []
    seen: dict[str, Collector] = {}
    for collector in collectors:
        where = f"collector {type(collector).__qualname__}"
        try:
            # The second time for its errors only: a collector may fail at every scrape but the first.
            families, _ = list(collector.collect()), list(collector.collect())
        except Exception as error:  # noqa: BLE001  any error of a collector is reported
            what = f"collect() raised {type(error).__name__}: {error}"
            broken.append(BrokenRule("collectors", where, what, "a scrape would lose its lines"))
            continue
        for family in families:
            if seen.setdefault(family.name, collector) is not collector:
                fix = "give each family to one collector"
                broken.append(BrokenRule("collectors", f"metric {family.name!r}", "comes from two collectors", fix))
            broken += [BrokenRule("metric-names", f"metric {family.name!r}", *found) for found in _lint(family)]
    return broken


def _lint(family: Metric) -> Iterator[tuple[str, str]]:
    """Yield what `promtool check metrics` or a host would object to, each with its fix."""
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


def scrape_rules(run: Started) -> list[BrokenRule]:
    """Check, after calls and requests, that a scrape has every metric of the provider, and no value of a caller."""
    collectors = run.generation.collectors
    broken = [
        BrokenRule("collectors", where, "is not returned by collectors()", "return it: no scrape has it")
        for where, collector in _find_held(run.generation.provider)
        if collector not in collectors
    ]
    scrape = set(_scrape(run.metrics))
    callers = _callers_values(run)
    for collector in collectors:
        for family in collector.collect():
            if family.name not in scrape:
                fix = "begin its name with the package's own, not with a prefix of the host"
                broken.append(BrokenRule("collectors", f"metric {family.name!r}", "is not in a scrape", fix))
            for name, value in dict.fromkeys(pair for sample in family.samples for pair in sample.labels.items()):
                if value in callers:
                    what = f"has the label {name}={value!r}, which is {callers[value]}"
                    fix = "label by a fixed set of values: each new one is a series for ever"
                    broken.append(BrokenRule("metric-labels", f"metric {family.name!r}", what, fix))
    return broken


def _scrape(metrics: CollectorRegistry) -> Iterator[str]:
    for line in generate_latest(metrics).decode("utf-8").splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            yield name
            # `collect` names the family of a counter without the suffix, the text format with it.
            yield name.removesuffix("_total")


def _find_held(provider: object) -> Iterator[tuple[str, Collector]]:
    """Yield the collectors in attributes of the instance, of their values, and of the module of its class."""
    module = as_object(vars(sys.modules.get(type(provider).__module__, sys)))
    yield from ((f"{name} of its module", value) for name, value in module.items() if isinstance(value, _METRICS))
    for name, value in _attributes(provider).items():
        inner = {f"{name}.{each}": one for each, one in _attributes(value).items()}
        found = {name: value} if isinstance(value, _METRICS) else inner
        yield from ((f"self.{each}", one) for each, one in found.items() if isinstance(one, _METRICS))


def _attributes(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", getattr(value, "__dict__", {}))


def _callers_values(run: Started) -> dict[str, str]:
    """Return what callers have sent, with a word for each; values of an enumeration are a fixed set."""
    subject = run.subject
    found = {
        subject.principal.subject or "": "the caller's name",
        subject.principal.tenant or "": "the caller's tenant",
    }
    found |= {CALL_ID: "the id of a call", FILLED["str"]: "a part of a path"}
    for tool, arguments in run.examples():
        schema = run.registry.catalog[tool].definition.parameters.value
        for name, value in arguments.items():
            described = str(as_object(schema.get("properties")).get(name))
            if isinstance(value, str) and len(value) > _SHORT and "'enum'" not in described:
                found[value] = f"the argument {name!r} of {tool!r}"
    return {value: word for value, word in found.items() if value}
