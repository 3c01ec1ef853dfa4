"""What remembers beyond one catalog: counters, rate windows, breakers, places in use.

Kept by kind, source and name, so that a reload that gives a tool a new plan gives it the same memory.
"""

from __future__ import annotations

from toolplug.catalog.definition import ToolRef
from toolplug.execution.limits import Abandoned, Breaker, Permits, Rate
from toolplug.execution.series import CallSeries

Level = tuple[str, ...]
"""Where a counter is set: `()` for every tool, `(kind, source)` for a provider, `(kind, source, name)` for a tool."""


class Ledger:
    """The memory of one host, or of one registry that stands alone. Nothing is ever dropped from it while it lives."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], CallSeries] = {}
        self._routes: dict[tuple[str, str, str], CallSeries] = {}
        self._refusals: dict[str, int] = {}
        self._permits: dict[Level, Permits] = {}
        self._rates: dict[Level, Rate] = {}
        self._breakers: dict[Level, Breaker] = {}
        self._abandoned: dict[Level, Abandoned] = {}

    def series(self, provider: str, tool_name: str) -> CallSeries:
        """The counters under these two labels."""
        kept = self._series.get((provider, tool_name))
        if kept is None:
            kept = self._series[provider, tool_name] = CallSeries(provider, tool_name)
        return kept

    def every_series(self) -> list[CallSeries]:
        """All counters, in the order in which they came."""
        return list(self._series.values())

    def route(self, provider: str, method: str, path: str) -> CallSeries:
        """The counters of one provider route; `path` is its template as declared."""
        kept = self._routes.get((provider, method, path))
        if kept is None:
            kept = self._routes[provider, method, path] = CallSeries(provider, path)
        return kept

    def every_route(self) -> list[tuple[tuple[str, str, str], CallSeries]]:
        """The counters of all routes, in the order in which they came."""
        return list(self._routes.items())

    def refused(self, code: str) -> None:
        """Count one request that the host refused, under the code of its error."""
        self._refusals[code] = self._refusals.get(code, 0) + 1

    def every_refusal(self) -> list[tuple[str, int]]:
        """How often each code was given, in the order in which they came."""
        return list(self._refusals.items())

    def permits(self, level: Level, size: int, queue: int) -> Permits:
        """The places of this level, with these numbers from now on."""
        kept = self._permits.get(level)
        if kept is None:
            kept = self._permits[level] = Permits(size, queue, _what(level))
        else:
            kept.resized(size, queue)
        return kept

    def rate(self, level: Level, count: int, per_s: int) -> Rate:
        """The rate window of this level, with these numbers from now on."""
        kept = self._rates.get(level)
        if kept is None:
            kept = self._rates[level] = Rate(count, per_s, _what(level))
        else:
            kept.resized(count, per_s)
        return kept

    def breaker(self, level: Level, failures: int, open_for_s: float) -> Breaker:
        """The breaker of this level, with these numbers from now on."""
        kept = self._breakers.get(level)
        if kept is None:
            kept = self._breakers[level] = Breaker(failures, open_for_s, _what(level))
        else:
            kept.resized(failures, open_for_s)
        return kept

    def abandoned(self, kind: str, source: str) -> Abandoned:
        """The count of one source's calls that were given up but still run."""
        kept = self._abandoned.get((kind, source))
        if kept is None:
            kept = self._abandoned[kind, source] = Abandoned(source)
        return kept


def level_of(ref: ToolRef) -> Level:
    """The level of one tool."""
    return (ref.kind, ref.source, ref.name)


def _what(level: Level) -> str:
    return level[-1] if level else "every tool"
