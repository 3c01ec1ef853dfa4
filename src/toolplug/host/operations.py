"""Metrics of the host itself: its build, the last reload, requests, the store, open breakers, waiting approvals."""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from time import perf_counter
from typing import Literal, TypeVar, get_args

from toolplug import library_types
from toolplug.errors import StoreConflict, StoreError
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.metrics import UncheckedCollector, counter_family, cumulate, gauge_family
from toolplug.runtime.tasks import SingleFlight
from toolplug.stores.store import DelegatingStore, Record, Store

# The record of a probe is written to see whether the store takes writes; nobody reads it.
_READY_KEPT_S = 60.0


class Operations(UncheckedCollector):
    """What one entered host counts of itself. Labels are names from the code and the configuration only.

    `count_waiting` returns how many calls wait for an approval.
    """

    def __init__(
        self,
        store: MeasuredStore,
        accounting: CallAccounting,
        count_waiting: Callable[[], Awaitable[int]],
        namespace: str,
    ) -> None:
        self._store = store
        self._accounting = accounting
        self._count_waiting = count_waiting
        self._namespace = namespace
        self._reloaded = True
        self._reloaded_at = self._store.now()
        self._waiting: int | None = None
        self._requests: dict[tuple[str, str], Durations] = {}
        self._statuses: Counter[tuple[str, str, str]] = Counter()
        # A store that is closed ends them.
        self._writing = SingleFlight(self._write, "toolplug-ready")
        self._counting = SingleFlight(self._count, "toolplug-waiting")

    @contextmanager
    def reloading(self) -> Generator[None]:
        """Note whether the block, which reloads the configuration, raises."""
        try:
            yield
        except BaseException:
            self._reloaded = False
            raise
        self._reloaded = True
        self._reloaded_at = self._store.now()

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count one request; `path` is a template of the host's, `seconds` until its response began."""
        took = self._requests.get((method, path))
        if took is None:
            took = self._requests[method, path] = Durations()
        took.record(seconds)
        self._statuses[method, path, str(status)] += 1

    async def refresh(self) -> None:
        """Read what only the store knows, before a scrape: how many calls wait for approval.

        All scrapes at once share one question to the store.
        """
        await self._counting.join()

    async def _count(self) -> None:
        try:
            self._waiting = await self._count_waiting()
        except StoreError:
            self._waiting = None

    async def store_error(self) -> StoreError | None:
        """Return the error of the store if it cannot be written; all that ask at once share one question to it."""
        return await self._writing.join()

    async def _write(self) -> StoreError | None:
        try:
            # A full disk can still be read.
            await self._store.commit("readyz", b"", ttl_s=_READY_KEPT_S, to=self._store.id)
        except StoreError as error:
            return error
        return None

    def collect(self) -> Iterator[library_types.Metric]:
        """Yield the families."""
        build = {"version": version("toolplug"), "python": platform.python_version()}
        yield self._gauge("build_info", "The version that runs; always 1.", build, 1.0)
        yield self._gauge(
            "config_last_reload_successful",
            "1 if the last reload was applied, 0 if it was refused.",
            {},
            self._reloaded,
        )
        yield self._gauge(
            "config_last_reload_success_timestamp_seconds",
            "When the present configuration was applied, by a start or a reload.",
            {},
            self._reloaded_at,
        )
        yield from self._http()
        yield from self._collect_stored()
        yield gauge_family(
            f"{self._namespace}_builtin_breaker_open",
            "1 while a breaker of this provider, or of one of its tools, refuses calls.",
            ["provider"],
            self._accounting.breakers().items(),
        )
        if self._waiting is not None:
            yield self._gauge("approvals_waiting", "Calls that wait for a person's decision.", {}, self._waiting)

    def _gauge(self, name: str, text: str, labels: Mapping[str, str], value: float) -> library_types.Metric:
        return gauge_family(f"{self._namespace}_{name}", text, [*labels], [((*labels.values(),), float(value))])

    def _http(self) -> Iterator[library_types.Metric]:
        labels, prefix = ["method", "path"], f"{self._namespace}_http"
        yield counter_family(
            f"{prefix}_requests", "Requests of the host's own routes.", [*labels, "status"], self._statuses.items()
        )
        took = library_types.HistogramMetricFamily(
            f"{prefix}_request_duration_seconds", "Time from request to the start of the response.", labels=labels
        )
        # A copy: `/metrics` collects in a thread while requests are counted in the loop.
        for names, durations in tuple(self._requests.items()):
            took.add_metric(names, cumulate(durations.counts, FAST_BUCKETS), durations.seconds)
        yield took

    def _collect_stored(self) -> Iterator[library_types.Metric]:
        prefix = f"{self._namespace}_store"
        took = library_types.HistogramMetricFamily(
            f"{prefix}_operation_duration_seconds", "Time that an operation of the store takes.", labels=["operation"]
        )
        for operation, durations in self._store.took.items():
            took.add_metric([operation], cumulate(durations.counts, FAST_BUCKETS), durations.seconds)
        yield took
        failed = [(operation, self._store.failed[operation]) for operation in self._store.took]
        yield counter_family(f"{prefix}_errors", "Operations of the store that failed.", ["operation"], failed)


T = TypeVar("T")
Operation = Literal["read", "commit", "extend", "keys"]

FAST_BUCKETS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
"""Upper bounds in seconds, for what takes milliseconds as a rule: requests to the host, operations of the store."""


class Durations:
    """How many durations were up to each bound of `FAST_BUCKETS`, and their sum in seconds.

    They are plain integers that a scrape reads: recording one costs about 0.2 µs.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(FAST_BUCKETS) + 1)
        self.seconds: float = 0.0

    def record(self, seconds: float) -> None:
        # `bisect_left`: the bounds of Prometheus are inclusive (`le`).
        self.counts[bisect_left(FAST_BUCKETS, seconds)] += 1
        self.seconds += seconds


class MeasuredStore(DelegatingStore):
    """A `Store` over another one. `took` has the durations by operation, `failed` the errors but for conflicts.

    `read` includes `revisions`. `events` and `watch` are not measured, as they wait for other processes.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.took: dict[Operation, Durations] = {operation: Durations() for operation in get_args(Operation)}
        self.failed: Counter[Operation] = Counter()

    async def read(self, key: str) -> Record | None:
        """Return the live record, or `None`."""
        return await self._measure("read", self._store.read(key))

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        return await self._measure("keys", self._store.keys(prefix, after=after, limit=limit))

    async def revisions(self, keys: Collection[str]) -> dict[str, int]:
        return await self._measure("read", self._store.revisions(keys))

    async def extend(
        self, key: str, *, events: Sequence[bytes] = (), ttl_s: float | None = None, to: str | None = None
    ) -> bool:
        """Append events and renew the time to live."""
        return await self._measure("extend", self._store.extend(key, events=events, ttl_s=ttl_s, to=to))

    async def commit(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int | None = None,
        ttl_s: float | None = None,
        events: Sequence[bytes] = (),
        to: str | None = None,
    ) -> int:
        """Write the record and append the events."""
        written = self._store.commit(key, value, expected=expected, ttl_s=ttl_s, events=events, to=to)
        return await self._measure("commit", written)

    async def _measure(self, operation: Operation, result: Awaitable[T]) -> T:
        began = perf_counter()
        try:
            return await result
        # An answer, not a failure: the caller has asked whether it is the first.
        except StoreConflict:
            raise
        except Exception:
            self.failed[operation] += 1
            raise
        finally:
            self.took[operation].record(perf_counter() - began)
