"""The calls of the last hour in numbers: of each tenant every five seconds, of each tool every minute."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple, TypedDict

TICK_S = 5
TICKS = 720
"""An hour of ticks; older ones are forgotten."""
MINUTE = 60 // TICK_S
"""Ticks of a minute: numbers of a tool are kept for each minute, which is what a small line of an hour shows."""
MAX_TENANTS = 64
"""Tenants that are counted in one tick; calls of more are counted for operators alone."""
MAX_TOOLS = 400
MAX_TOOLS_OF_TENANT = 200
"""Tools that are counted in one minute, each with its tenant; calls of more are in the totals of their tenant alone."""
MAX_ANSWERED = 200
"""Tools that one answer lists: those with the most calls."""
MAX_COUNTS = 1_000
"""Different calls that are counted before they are added to the tick, which is bounded itself."""
BOUNDS_S = tuple(0.001 * 1.25**n for n in range(58))
"""Where one bucket of durations ends and the next begins, 1 ms to 334 s; the last has no end. Each is a quarter wider
than the one before: a percentile is at most 12 % off, so that people find the call that it comes from."""
_BOUNDS_FROM_0_S = (0.0, *BOUNDS_S)
"""So that one search, without a function around it, also finds the calls that took no time."""

_EVERYBODY = None
"""The tenant of the numbers that operators see: all of them."""


class CalledTool(NamedTuple):
    """A tool that was called: the kind and the key of its source, and its name."""

    tenant: str
    kind: str
    source: str
    tool: str


class ToolNumbers(TypedDict):
    """Calls and failures of a tool in each minute of the hour, the oldest first."""

    kind: str
    source: str
    tool: str
    calls: list[int]
    failed: list[int]


class OpenNumbers(TypedDict):
    """The calls of the tick that has not ended."""

    calls: int
    failed: int


class Numbers(TypedDict):
    """What a visitor sees of the hour. `ends` is the second at which the last tick ends; a tick has `step_s` seconds.

    The lists have a value for each tick, the oldest first; percentiles are seconds, None for a tick without calls.
    `open` has what this process has counted since `ends`; `tools` has it too.
    """

    ends: int
    step_s: int
    calls: list[int]
    failed: list[int]
    p50: list[float | None]
    p95: list[float | None]
    open: OpenNumbers
    tools: list[ToolNumbers]


class TickNumbers(TypedDict):
    """The numbers of one tick as the processes of a store exchange them."""

    totals: list[tuple[str | None, list[int]]]
    tools: list[tuple[str, str, str, str, int, int]]


class Tick:
    """The calls of one span of time. `totals` has calls, failures, and the buckets of durations of each tenant."""

    __slots__ = ("number", "tools", "totals")

    def __init__(self, number: int) -> None:
        self.number = number
        self.totals: dict[str | None, list[int]] = {}
        self.tools: dict[CalledTool, list[int]] = {}

    def count(self, tool: CalledTool, bucket: int | None, calls: int, *, failed: bool) -> None:
        """Count calls of one bucket; None for those that did not reach a tool, and took no time.

        Those whose `tool` has no name are counted in the totals alone.
        """
        for tenant in (_EVERYBODY, tool.tenant):
            total = self.totals.get(tenant)
            if total is None:
                if len(self.totals) > MAX_TENANTS:
                    continue
                total = self.totals[tenant] = [0] * (3 + len(BOUNDS_S))
            total[0] += calls
            total[1] += calls if failed else 0
            if bucket is not None:
                total[2 + bucket] += calls
        if tool.tool:
            self.add_tool(tool, calls, calls if failed else 0)

    def add_totals(self, tenant: str | None, counted: Sequence[int]) -> None:
        """Add the totals of a tenant."""
        known = self.totals.get(tenant)
        if known is not None:
            self.totals[tenant] = [a + b for a, b in zip(known, counted, strict=True)]
        elif len(self.totals) <= MAX_TENANTS:
            self.totals[tenant] = list(counted)

    def add_tool(self, tool: CalledTool, calls: int, failed: int) -> None:
        """Add calls of a tool."""
        counted = self.tools.get(tool)
        if counted is None:
            if len(self.tools) >= MAX_TOOLS:
                return
            if sum(each.tenant == tool.tenant for each in self.tools) >= MAX_TOOLS_OF_TENANT:
                return
            counted = self.tools[tool] = [0, 0]
        counted[0] += calls
        counted[1] += failed

    def numbers(self) -> TickNumbers:
        """Return what was counted."""
        tools = [(of.tenant, of.kind, of.source, of.tool, calls, bad) for of, (calls, bad) in self.tools.items()]
        return {"totals": list(self.totals.items()), "tools": tools}


class Hour:
    """The numbers of the last hour. `clock` returns seconds since the epoch.

    A call is counted in the open tick; a tick that has ended is added to the hour. What is counted is bounded, whatever
    callers name.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: Tick | None = None
        self._counts: dict[
            tuple[tuple[str, str, str, str], bool, int | None], int
        ] = {}  # of the open tick, still to be added
        self._ended: deque[tuple[int, TickNumbers]] = deque(maxlen=MINUTE)
        self._ticks: deque[Tick] = deque(maxlen=TICKS)
        self._minutes: deque[Tick] = deque(maxlen=TICKS // MINUTE)
        self._answers: dict[str | None, tuple[int, Numbers]] = {}

    def count(self, tool: tuple[str, str, str, str], durations_s: Iterable[float], *, failed: bool, at: float) -> None:
        """Count calls that ended in the tick of this second; `tool` has the fields of a `CalledTool`."""
        number = tick_of(at)
        tick = self._open
        if tick is not None and tick.number > number + MINUTE:
            tick.number = number  # the clock has been set back
        if tick is None or tick.number < number:
            self._end_tick(number)
            self._open = Tick(number)
        # The tick is made of these later: calls of one tool are much alike.
        counts = self._counts
        for place, calls in Counter(map(bisect_left, repeat(_BOUNDS_FROM_0_S), durations_s)).items():
            key = (tool, failed, place - 1 if place else None)
            counts[key] = counts.get(key, 0) + calls
        if len(counts) >= MAX_COUNTS:
            self._add_counts()

    def take_ended(self, *, ending: bool = False) -> list[tuple[int, TickNumbers]]:
        """Return each tick of this process that has ended since the last time, the oldest first; at most a minute.

        With `ending` the open tick is ended too.
        """
        self._end_tick(int(self._clock()) // TICK_S + int(ending))
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def known_ticks(self) -> frozenset[int]:
        """Return the numbers of the ticks in which calls were counted."""
        counted = frozenset(tick.number for tick in self._ticks)
        return counted if self._open is None else counted | {self._open.number}

    def add(self, number: int, numbers: TickNumbers) -> None:
        """Add the numbers of a tick that has ended.

        One of more than an hour ago is left out, and one of a process whose clock is more than a minute ahead.
        """
        most = int(self._clock()) // TICK_S + MINUTE
        tick = _tick_of(self._ticks, number, most)
        minute = _tick_of(self._minutes, number // MINUTE, most // MINUTE)
        for tenant, counted in numbers["totals"]:
            if tick is not None:
                tick.add_totals(tenant, counted)
        for *named, calls, failed in numbers["tools"]:
            if minute is not None:
                minute.add_tool(CalledTool(*named), calls, failed)

    def _end_tick(self, now: int) -> None:
        """Add the open tick to the hour, if it has ended before the tick of this number."""
        if self._open is None or self._open.number >= now:
            return
        self._add_counts()
        ended, self._open = self._open, None
        numbers = ended.numbers()
        self.add(ended.number, numbers)
        self._ended.append((ended.number, numbers))

    def _add_counts(self) -> None:
        """Add what was counted to the open tick."""
        counts, self._counts = self._counts, {}
        if self._open is not None:
            for (tool, failed, bucket), calls in counts.items():
                self._open.count(CalledTool(*tool), bucket, calls, failed=failed)

    def numbers(self, tenant: str | None) -> Numbers:
        """Return the numbers of a tenant, of all for None."""
        now = int(self._clock()) // TICK_S
        self._end_tick(now)
        known = self._answers.get(tenant)
        if known is None or known[0] != now:
            # Once for the length of a tick: what has ended does not change, and it is the work.
            known = now, self._summarize(tenant, now - 1)
            if len(self._answers) >= MAX_TENANTS:
                self._answers.clear()
            self._answers[tenant] = known
        self._add_counts()
        return known[1] if self._open is None else _with_open(known[1], self._open, tenant)

    def _summarize(self, tenant: str | None, last: int) -> Numbers:
        first = last - TICKS + 1
        calls, failed = [0] * TICKS, [0] * TICKS
        middle: list[float | None] = [None] * TICKS
        high: list[float | None] = [None] * TICKS
        for tick in self._ticks:
            total = tick.totals.get(tenant)
            at = tick.number - first
            if total is not None and 0 <= at < TICKS:
                calls[at], failed[at] = total[0], total[1]
                middle[at], high[at] = quantile(0.5, total[2:]), quantile(0.95, total[2:])
        return {
            "ends": (last + 1) * TICK_S,
            "step_s": TICK_S,
            "calls": calls,
            "failed": failed,
            "p50": middle,
            "p95": high,
            "open": {"calls": 0, "failed": 0},
            "tools": _by_tool(self._minutes, tenant, (last + 1) // MINUTE),
        }


def tick_of(at: float) -> int:
    """Return the number of the tick of a second."""
    return int(at) // TICK_S


def bucket_of(duration_s: float) -> int | None:
    """Return the place of a duration among the buckets; None for that of a call that did not reach a tool."""
    return bisect_left(BOUNDS_S, duration_s) if duration_s else None


def quantile(share: float, buckets: Sequence[int]) -> float | None:
    """Return the duration below which this share of calls ended, read off their buckets; None without calls."""
    calls = sum(buckets)
    if not calls:
        return None
    left = share * calls
    for place, counted in enumerate(buckets):
        if counted and left <= counted:
            return _middle(place)
        left -= counted
    return _middle(len(BOUNDS_S))


def _middle(place: int) -> float:
    """Return the duration in the middle of a bucket, as many times its least as the most is times this one."""
    low = BOUNDS_S[place - 1] if place else BOUNDS_S[0] / 4
    high = BOUNDS_S[place] if place < len(BOUNDS_S) else low
    return round(math.sqrt(low * high), 6)


def _tick_of(ticks: deque[Tick], number: int, most: int) -> Tick | None:
    """Return the tick of this number, in its place; None if it is older than what is remembered, or beyond `most`."""
    if number > most:
        return None
    while ticks and ticks[-1].number > most:
        ticks.pop()  # the clock has been set back
    if not ticks or number > ticks[-1].number:
        ticks.append(Tick(number))
    oldest = ticks[-1].number - (ticks.maxlen or 0)
    while ticks[0].number <= oldest:
        ticks.popleft()
    if number <= oldest:
        return None
    place = bisect_left(ticks, number, key=lambda each: each.number)
    if ticks[place].number != number:
        ticks.insert(place, Tick(number))
    return ticks[place]


def _by_tool(minutes: Iterable[Tick], tenant: str | None, last: int) -> list[ToolNumbers]:
    first = last - TICKS // MINUTE + 1
    found: dict[tuple[str, str, str], ToolNumbers] = {}
    for minute in minutes:
        if first <= minute.number <= last:
            _add_tools(found, minute, tenant, minute.number - first)
    return _busiest(found)


def _add_tools(found: dict[tuple[str, str, str], ToolNumbers], of: Tick, tenant: str | None, minute: int) -> None:
    for tool, (calls, failed) in of.tools.items():
        if tenant in (_EVERYBODY, tool.tenant):
            counted = found.setdefault(tool[1:], _no_calls(tool))
            counted["calls"][minute] += calls
            counted["failed"][minute] += failed


def _busiest(found: Mapping[tuple[str, str, str], ToolNumbers]) -> list[ToolNumbers]:
    return sorted(found.values(), key=lambda each: -sum(each["calls"]))[:MAX_ANSWERED]


def _with_open(numbers: Numbers, tick: Tick, tenant: str | None) -> Numbers:
    """Return the numbers with what the open tick has of the tenant."""
    calls, failed, *_ = tick.totals.get(tenant, (0, 0))
    called = {tool[1:] for tool in tick.tools}
    found: dict[tuple[str, str, str], ToolNumbers] = {}
    for each in numbers["tools"]:
        of = (each["kind"], each["source"], each["tool"])
        mine = of in called
        found[of] = {**each, "calls": [*each["calls"]], "failed": [*each["failed"]]} if mine else each
    _add_tools(found, tick, tenant, -1)
    return {**numbers, "open": {"calls": calls, "failed": failed}, "tools": _busiest(found)}


def _no_calls(tool: CalledTool) -> ToolNumbers:
    none = [0] * (TICKS // MINUTE)
    return {"kind": tool.kind, "source": tool.source, "tool": tool.tool, "calls": [*none], "failed": none}
