"""Counters, rate windows, breakers and concurrency limits, which outlive the catalogs; the audit log and metrics.

They are kept by kind, source and name, so that a tool keeps them when a reload gives it a new plan.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import time
from typing import NamedTuple, Protocol

from toolplug import library_types
from toolplug.catalog.call import EMPTY, CallContext, Principal, ToolCall
from toolplug.catalog.definition import ToolRef
from toolplug.catalog.plan import EndableWork, Plan
from toolplug.config.units import timestamp
from toolplug.execution.limiters import (
    ABANDONED_DRAIN_S,
    AbandonedCallLimit,
    Breaker,
    ConcurrencyLimit,
    RateLimit,
    SourceSwitch,
)

_LOGGER = logging.getLogger("toolplug.audit")
"""One JSON object a line for each refusal and change, without arguments, results, tokens and session codes."""


class AuditOrigin(Protocol):
    """Where a request came from; read only when a line is written, or something is stored that counts.

    `peer` is the caller's address, `credential` the first characters of the SHA-256 of its credential.
    """

    @property
    def principal(self) -> Principal: ...
    @property
    def peer(self) -> str: ...
    @property
    def credential(self) -> str: ...


audit_origin: ContextVar[AuditOrigin | None] = ContextVar("toolplug_audit_origin", default=None)
"""The origin of the current request; None outside of requests."""

audit_via: ContextVar[str] = ContextVar("toolplug_audit_via", default="")
"""What made the current call in its caller's place, such as a script; empty for nothing."""


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

    A line of a request also has `peer` and `credential`, one of a call that something else than its caller made `via`.
    Pass `origin` for a request that has not been admitted yet. Handlers of the log find the members in `record.audit`.
    """
    origin, via = origin or audit_origin.get(), audit_via.get()
    line = {
        "ts": timestamp(time()),
        "event": event,
        "outcome": outcome,
        "principal": principal.subject,
        "tenant": principal.tenant,
        "target": target,
        "request_id": request_id,
        **more,
        **({"via": via} if via else {}),
        **({} if origin is None else {"peer": origin.peer, "credential": origin.credential}),
    }
    _LOGGER.info("%s", json.dumps(line, separators=(",", ":")), extra={"audit": line})


@contextmanager
def audit_block(event: str, principal: Principal, request_id: str, target: Callable[[], str]) -> Generator[None]:
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
    """Calls of one tool by status, and their durations in seconds; lives as long as its `CallAccounting`.

    `listed` is False while another tool has the name; metrics then leave the tool out until it has been called.
    """

    __slots__ = ("buckets", "ended", "in_flight", "listed", "provider", "refusals", "running", "seconds", "tool_name")

    def __init__(self, provider: str, tool_name: str, running: set[EndableWork] | None = None) -> None:
        self.provider: str = provider
        self.tool_name: str = tool_name
        self.running: set[EndableWork] = set() if running is None else running
        self.ended: dict[str, int] = {}
        self.buckets: list[int] = [0] * (len(BUCKETS) + 1)
        self.seconds: float = 0.0
        self.in_flight: int = 0
        self.listed: bool = True
        self.refusals: dict[str, int] | None = None

    def record(self, status: str, seconds: float) -> None:
        """Count one answered call, which took this long."""
        try:
            self.ended[status] += 1
        except KeyError:
            self.ended[status] = 1
        # A call of less than 10 ms, as most are, needs no search.
        self.buckets[0 if seconds <= _FASTEST else bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def limited_by(self, gate: str) -> None:
        """Count one call that this gate refused for now: the name of a limit, or of what else was full."""
        refusals = self.refusals = self.refusals or {}
        refusals[gate] = refusals.get(gate, 0) + 1


OnCall = Callable[[str, str, str, float], None]
"""Called with provider, tool name, status and seconds of each answered call. Must not raise."""


class _ObservedCounters(CallCounters):
    """Counters that also report each call."""

    __slots__ = ("_on_call",)

    def __init__(self, provider: str, tool_name: str, running: set[EndableWork], on_call: OnCall) -> None:
        super().__init__(provider, tool_name, running)
        self._on_call = on_call

    def record(self, status: str, seconds: float) -> None:
        """Count and report one answered call."""
        super().record(status, seconds)
        self._on_call(self.provider, self.tool_name, status, seconds)


MAX_SERIES = 2_000
"""Tools with metrics of their own: a scrape of 10,000 takes seconds (docs/reference/limits.md)."""
MAX_LABELS = 200
"""Tools of a server, of a part or of a toolset's source that have metrics of their own; the others share one label."""
OTHER = "_other"

LevelKey = tuple[str, ...]
"""The place of a limit: `()` for every tool, `(kind, source)` for a provider, `(kind, source, name)` for a tool."""


class CallAccounting:
    """The counters and limiters of one host, or of one registry without a host. None is dropped during its lifetime.

    `on_call` is called for each answered call, also for refused ones and unknown tools. `cluster` has the limits that
    hold for all processes of the store; None if there is one process. `refusals` counts the requests that the host
    refused by error code, `quotas` those of them whose tenant or key has used up a quota, by quota.
    """

    def __init__(self, on_call: OnCall | None = None, cluster: library_types.ClusterLimits | None = None) -> None:
        self.cluster: library_types.ClusterLimits | None = cluster
        self.running: set[EndableWork] = set()
        self._on_call = on_call
        self._counters: dict[tuple[str, str], CallCounters] = {}
        self._names: dict[str, set[str]] = {}
        self._routes: dict[tuple[str, str, str], CallCounters] = {}
        self.refusals: Counter[str] = Counter()
        self.quotas: Counter[str] = Counter()
        self.watched: Counter[tuple[str, str, str]] = Counter()
        self._permits: dict[LevelKey, ConcurrencyLimit] = {}
        self._rates: dict[LevelKey, RateLimit] = {}
        self._breakers: dict[LevelKey, Breaker] = {}
        self._abandoned: dict[LevelKey, AbandonedCallLimit] = {}

    @property
    def drains_s(self) -> set[float]:
        """The times for which running calls may go on when their sources are switched off."""
        return {work.drain_s for work in self.running if math.isfinite(work.drain_s)}

    def end_running(self, switch: SourceSwitch | None = None, *, after_s: float = math.inf) -> int:
        """End the calls and requests of a source, None for all, whose time to drain is over after `after_s` seconds.

        Their callers get `timeout` with the code `draining`. Return how many there were.
        """
        own = [work for work in self.running if switch is None or work.switch is switch]
        ending = [work for work in own if work.drain_s <= after_s]
        for work in ending:
            work.end()
        return len(ending)

    async def drain(self, switch: SourceSwitch, within_s: float) -> bool:
        """Wait until nothing of a switched-off source runs; end what outlasts `within_s`. False if code runs on.

        Code that was asked to stop has `ABANDONED_DRAIN_S` to do so.
        """
        in_time = await switch.drain(within_s)
        ended = self.end_running(switch)  # those in a queue or a pause too: they never run
        return in_time or (ended > 0 and await switch.drain(ABANDONED_DRAIN_S))

    async def drain_all(self) -> None:
        """Wait until no call runs, also one that no request waits for; end those that outlast their time to drain."""
        patience_s: dict[SourceSwitch, float] = {}
        for work in self.running:
            if math.isfinite(work.drain_s):
                patience_s[work.switch] = max(work.drain_s, patience_s.get(work.switch, 0.0))
        await asyncio.gather(*(self.drain(switch, within_s) for switch, within_s in patience_s.items()))

    def counters(self, provider: str, tool_name: str) -> CallCounters:
        """Return the counters with these two labels; creates them on the first call."""
        kept = self._counters.get((provider, tool_name))
        if kept is None:
            on_call, own = self._on_call, (provider, tool_name, self.running)
            kept = CallCounters(*own) if on_call is None else _ObservedCounters(*own, on_call)
            self._counters[provider, tool_name] = kept
        return kept

    def capped_counters(self, provider: str, tool_name: str) -> CallCounters:
        """Return the counters of a tool that a server or a plugin names as it likes; beyond `MAX_LABELS` share one."""
        names = self._names.setdefault(provider, set())
        if tool_name not in names and len(names) >= MAX_LABELS:
            tool_name = OTHER
        names.add(tool_name)
        return self.counters(provider, tool_name)

    def all_counters(self) -> list[CallCounters]:
        """Return all counters in the order of their creation."""
        return list(self._counters.values())

    def route(self, provider: str, method: str, path: str) -> CallCounters:
        """Return the counters of one provider route; `path` is its template as declared."""
        kept = self._routes.get((provider, method, path))
        if kept is None:
            kept = self._routes[provider, method, path] = CallCounters(provider, path)
        return kept

    def every_route(self) -> list[tuple[tuple[str, str, str], CallCounters]]:
        """Return `((provider, method, path), counters)` of each route in the order of their creation."""
        return list(self._routes.items())

    def watch(self, provider: str, tool_name: str, rule: str) -> None:
        """Count one call that a rule would have denied, were it not only watched."""
        # The rest is one sum: rules are of the configuration, names of tools may be those of a server.
        known = (provider, tool_name, rule)
        self.watched[known if known in self.watched or len(self.watched) < MAX_SERIES else ("", "", rule)] += 1

    def breakers(self) -> dict[str, bool]:
        """Return by provider, as in the metrics of calls, whether a breaker of it or of one of its tools refuses calls.

        A toolset's breaker is `toolset:` and its id, that of all tools `_all`.
        """
        found = {_label(level): False for level in tuple(self._abandoned)}
        for level, limit in tuple(self._abandoned.items()):
            found[_label(level)] |= limit.running >= limit.limit
        for level, breaker in tuple(self._breakers.items()):
            found[_label(level)] = found.get(_label(level), False) or breaker.open
        return found

    def concurrency_limit(self, level: LevelKey, size: int, queue: int) -> ConcurrencyLimit:
        """Return the concurrency limit of this level, changed to these numbers."""
        kept = self._permits.setdefault(level, ConcurrencyLimit(size, queue, what_of(level)))
        kept.resize(size, queue)
        return kept

    def rate(self, level: LevelKey, count: int, per_s: int) -> RateLimit:
        """Return the rate window of this level, changed to these numbers."""
        kept = self._rates.setdefault(level, RateLimit(count, per_s, what_of(level)))
        kept.resize(count, per_s)
        return kept

    def breaker(self, level: LevelKey, failures: int, open_for_s: float) -> Breaker:
        """Return the breaker of this level, changed to these numbers."""
        kept = self._breakers.setdefault(level, Breaker(failures, open_for_s, what_of(level)))
        kept.resize(failures, open_for_s)
        return kept

    def abandoned_limit(self, kind: str, source: str) -> AbandonedCallLimit:
        """Return the limit of one source's calls that were answered at their deadline but still run."""
        return self._abandoned.setdefault((kind, source), AbandonedCallLimit(source))


class WatchedPolicy(NamedTuple):
    """A policy that lets every call pass, and says which it would have denied. Implements `Approval` of `Plan`."""

    accounting: CallAccounting
    rule: str

    async def claim(
        self,
        plan: Plan,
        call: ToolCall,
        context: CallContext,
        why: str | None = None,
        listed: str | None = None,
    ) -> NothingClaimed:
        """Count and audit what the policy would have done."""
        return self.claim_at_once(plan, call, call, context, listed)

    def claim_at_once(
        self, plan: Plan, call: ToolCall, inner: ToolCall, context: CallContext, listed: str | None = None
    ) -> NothingClaimed:
        """Count and audit what the policy would have done."""
        ref = plan.ref
        self.accounting.watch(ref.source, ref.name, self.rule)
        said = {"rule": self.rule, "would": "denied", "call_id": call.id}
        audit("tool.call", "watched", context.principal, listed or call.name, context.request_id, None, **said)
        return _NOTHING_CLAIMED


class NothingClaimed(NamedTuple):
    """The right to make a call that needs none."""

    arguments: None = None
    metadata: Mapping[str, object] = EMPTY
    ticket: None = None
    goes_on: None = None

    async def release(self, waits: Mapping[str, object] = EMPTY) -> None:
        """Return nothing, as nothing was used."""

    async def end(self) -> None:
        """Do nothing, as nothing was used."""


_NOTHING_CLAIMED = NothingClaimed()


def level_of(ref: ToolRef) -> LevelKey:
    return (ref.kind, ref.source, ref.name)


def what_of(level: LevelKey) -> str:
    """Return the name of a level in messages."""
    return level[-1] if level else "every tool"


def _label(level: LevelKey) -> str:
    if not level:
        return "_all"
    kind, of, _ = level[0].partition(" of ")  # a server that a tenant has added: its name is the tenant's
    source = "_added" if of else level[1]
    return source if kind in {"native", "session"} else f"{kind}:{source}"


DEFAULT_NAMESPACE = "antwort"
