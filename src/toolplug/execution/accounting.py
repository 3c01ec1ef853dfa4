"""What remembers beyond one catalog: counters, rate windows, breakers, places in use.

Kept by kind, source and name, so that a reload that gives a tool a new plan gives it the same memory.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from time import time
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.catalog.call import Principal
from toolplug.catalog.definition import ToolRef
from toolplug.execution.limits import AbandonedCallLimit, Breaker, ConcurrencyLimit, Rate


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# The audit trail: one JSON object a line for each refusal and each change, on the logger `toolplug.audit`.
#
# Arguments, results, tokens and session codes never stand in it.

_LOGGER = logging.getLogger("toolplug.audit")


class AuditOrigin(Protocol):
    """Where a request came from; read only when a line is written, or something is stored that counts."""

    @property
    def principal(self) -> Principal:
        """Its caller."""
        ...

    @property
    def peer(self) -> str:
        """Its address."""
        ...

    @property
    def credential(self) -> str:
        """The start of the SHA-256 of its credential."""
        ...


audit_origin: ContextVar[AuditOrigin | None] = ContextVar("toolplug_audit_origin", default=None)
"""The origin of the request that runs now; None outside of requests."""


def audit(
    event: str,
    outcome: str,
    principal: Principal,
    target: str,
    request_id: str,
    origin: AuditOrigin | None = None,
    **more: str,
) -> None:
    """Write one line: `ts` (ISO 8601, UTC), event, outcome, principal, tenant, target, request id, `more`.

    Of a request also `peer` and `credential`; `origin` is given where the request has not been admitted.
    """
    origin = origin or audit_origin.get()
    line = {
        "ts": datetime.fromtimestamp(time(), UTC).isoformat(timespec="milliseconds"),
        "event": event,
        "outcome": outcome,
        "principal": principal.subject,
        "tenant": principal.tenant,
        "target": target,
        "request_id": request_id,
        **more,
        **({} if origin is None else {"peer": origin.peer, "credential": origin.credential}),
    }
    _LOGGER.info("%s", json.dumps(line, separators=(",", ":")))


@contextmanager
def audited(event: str, principal: Principal, request_id: str, target: Callable[[], str]) -> Generator[None]:
    """Write one audit line when the block ends: `done`, or `refused` if it raises; `target` is called then."""
    try:
        yield
    except Exception:
        audit(event, "refused", principal, target(), request_id)
        raise
    audit(event, "done", principal, target(), request_id)


BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

_FASTEST = BUCKETS[0]


class CallCounters:
    """How the calls of one tool ended and how long they took. Never falls; lives as long as its `CallAccounting`.

    `listed` is False while another tool has its name: it has no lines of zeros then.
    """

    __slots__ = ("buckets", "ended", "in_flight", "listed", "provider", "seconds", "tool_name")

    def __init__(self, provider: str, tool_name: str) -> None:
        self.provider: str = provider
        self.tool_name: str = tool_name
        self.ended: dict[str, int] = {}
        self.buckets: list[int] = [0] * (len(BUCKETS) + 1)
        self.seconds: float = 0.0
        self.in_flight: int = 0
        self.listed: bool = True

    def record(self, status: str, seconds: float) -> None:
        """Count one call that has been answered."""
        try:
            self.ended[status] += 1
        except KeyError:
            self.ended[status] = 1
        self.buckets[0 if seconds <= _FASTEST else bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


OnCall = Callable[[str, str, str, float], None]
"""Called with provider, tool name, status and seconds of each call that has been answered. Must not raise."""


class _ObservedCounters(CallCounters):
    """Counters that also report each call."""

    __slots__ = ("_on_call",)

    def __init__(self, provider: str, tool_name: str, on_call: OnCall) -> None:
        super().__init__(provider, tool_name)
        self._on_call = on_call

    def record(self, status: str, seconds: float) -> None:
        """Count one call that has been answered, and report it."""
        super().record(status, seconds)
        self._on_call(self.provider, self.tool_name, status, seconds)


def cumulated(counts: list[int]) -> list[tuple[str, float]]:
    """Counts for each bucket as the cumulated ones that the exposition format has."""
    bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
    total = 0
    cumulated: list[tuple[str, float]] = []
    for bound, count in zip(bounds, tuple(counts), strict=True):
        total += count
        cumulated.append((bound, float(total)))
    return cumulated


LevelKey = tuple[str, ...]
"""Where a counter is set: `()` for every tool, `(kind, source)` for a provider, `(kind, source, name)` for a tool."""


class CallAccounting:
    """The memory of one host, or of one registry that stands alone. Nothing is ever dropped from it while it lives.

    `on_call` is called for each tool call that has been answered, refused and unknown ones too.
    """

    def __init__(self, on_call: OnCall | None = None) -> None:
        self._on_call = on_call
        self._counters: dict[tuple[str, str], CallCounters] = {}
        self._routes: dict[tuple[str, str, str], CallCounters] = {}
        self._refusals: dict[str, int] = {}
        self._permits: dict[LevelKey, ConcurrencyLimit] = {}
        self._rates: dict[LevelKey, Rate] = {}
        self._breakers: dict[LevelKey, Breaker] = {}
        self._abandoned: dict[LevelKey, AbandonedCallLimit] = {}

    def counters(self, provider: str, tool_name: str) -> CallCounters:
        """The counters under these two labels."""
        kept = self._counters.get((provider, tool_name))
        if kept is None:
            kept = self._counters[provider, tool_name] = self._made(provider, tool_name)
        return kept

    def _made(self, provider: str, tool_name: str) -> CallCounters:
        if self._on_call is None:
            return CallCounters(provider, tool_name)
        return _ObservedCounters(provider, tool_name, self._on_call)

    def all_counters(self) -> list[CallCounters]:
        """All counters, in the order in which they came."""
        return list(self._counters.values())

    def route(self, provider: str, method: str, path: str) -> CallCounters:
        """The counters of one provider route; `path` is its template as declared."""
        kept = self._routes.get((provider, method, path))
        if kept is None:
            kept = self._routes[provider, method, path] = CallCounters(provider, path)
        return kept

    def every_route(self) -> list[tuple[tuple[str, str, str], CallCounters]]:
        """The counters of all routes, in the order in which they came."""
        return list(self._routes.items())

    def refused(self, code: str) -> None:
        """Count one request that the host refused, under the code of its error."""
        self._refusals[code] = self._refusals.get(code, 0) + 1

    def every_refusal(self) -> list[tuple[str, int]]:
        """How often each code was given, in the order in which they came."""
        return list(self._refusals.items())

    def permits(self, level: LevelKey, size: int, queue: int) -> ConcurrencyLimit:
        """The places of this level, with these numbers from now on."""
        kept = self._permits.get(level)
        if kept is None:
            kept = self._permits[level] = ConcurrencyLimit(size, queue, _what(level))
        else:
            kept.resized(size, queue)
        return kept

    def rate(self, level: LevelKey, count: int, per_s: int) -> Rate:
        """The rate window of this level, with these numbers from now on."""
        kept = self._rates.get(level)
        if kept is None:
            kept = self._rates[level] = Rate(count, per_s, _what(level))
        else:
            kept.resized(count, per_s)
        return kept

    def breaker(self, level: LevelKey, failures: int, open_for_s: float) -> Breaker:
        """The breaker of this level, with these numbers from now on."""
        kept = self._breakers.get(level)
        if kept is None:
            kept = self._breakers[level] = Breaker(failures, open_for_s, _what(level))
        else:
            kept.resized(failures, open_for_s)
        return kept

    def abandoned(self, kind: str, source: str) -> AbandonedCallLimit:
        """The count of one source's calls that were given up but still run."""
        kept = self._abandoned.get((kind, source))
        if kept is None:
            kept = self._abandoned[kind, source] = AbandonedCallLimit(source)
        return kept


def level_of(ref: ToolRef) -> LevelKey:
    """The level of one tool."""
    return (ref.kind, ref.source, ref.name)


def _what(level: LevelKey) -> str:
    return level[-1] if level else "every tool"


DEFAULT_NAMESPACE = "antwort"
MAX_SERIES = 2_000
"""Tools with lines of their own: a scrape of 10,000 takes seconds (docs/reference/limits.md)."""


class CallMetrics(Collector):
    """The metrics of tool calls and provider routes, under a configurable namespace."""

    def __init__(self, accounting: CallAccounting, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._accounting = accounting
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
        every = [item for item in self._accounting.all_counters() if item.listed or item.ended or item.in_flight]
        for counters in every[:MAX_SERIES]:
            names = [counters.provider, counters.tool_name]
            for status, count in tuple(counters.ended.items()):
                ended.add_metric([*names, status], count)
            took.add_metric(names, cumulated(counters.buckets), counters.seconds)
            running.add_metric(names, counters.in_flight)
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
        for (provider, method, path), counters in self._accounting.every_route():
            for status, count in tuple(counters.ended.items()):
                ended.add_metric([provider, method, path, status], count)
            took.add_metric([provider, method, path], cumulated(counters.buckets), counters.seconds)
        return iter((ended, took))

    def _refusals(self) -> Metric:
        refused = CounterMetricFamily(
            f"{self._namespace}_http_refusals", "Requests that the host refused.", labels=["code"]
        )
        for code, count in self._accounting.every_refusal():
            refused.add_metric([code], count)
        return refused
