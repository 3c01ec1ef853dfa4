"""Metrics of the host itself: its build, the last reload, requests, the store, open breakers, waiting approvals."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.errors import StoreError
from toolplug.execution.accounting import CallAccounting
from toolplug.host.measured_store import Durations, MeasuredStore
from toolplug.runtime.tasks import SingleFlight

# The record of a probe is written to see whether the store takes writes; nobody reads it.
_READY_KEPT_S = 60.0


class Operations(Collector):
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

    def describe(self) -> Iterator[Metric]:
        """Return no families, so that registering does not collect: the names cannot clash with a provider's."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
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
        open_breakers = GaugeMetricFamily(
            f"{self._namespace}_builtin_breaker_open",
            "1 while a breaker of this provider, or of one of its tools, refuses calls.",
            labels=["provider"],
        )
        for provider, is_open in self._accounting.breakers().items():
            open_breakers.add_metric([provider], float(is_open))
        yield open_breakers
        if self._waiting is not None:
            yield self._gauge("approvals_waiting", "Calls that wait for a person's decision.", {}, self._waiting)

    def _gauge(self, name: str, text: str, labels: Mapping[str, str], value: float) -> Metric:
        family = GaugeMetricFamily(f"{self._namespace}_{name}", text, labels=list(labels))
        family.add_metric(list(labels.values()), float(value))
        return family

    def _http(self) -> Iterator[Metric]:
        labels, prefix = ["method", "path"], f"{self._namespace}_http"
        ended = CounterMetricFamily(
            f"{prefix}_requests", "Requests of the host's own routes.", labels=[*labels, "status"]
        )
        took = HistogramMetricFamily(
            f"{prefix}_request_duration_seconds", "Time from request to the start of the response.", labels=labels
        )
        # Copies, here and below: `/metrics` collects in a thread while requests are counted in the loop.
        for names, count in tuple(self._statuses.items()):
            ended.add_metric(names, count)
        for names, durations in tuple(self._requests.items()):
            took.add_metric(names, durations.cumulate(), durations.seconds)
        return iter((ended, took))

    def _collect_stored(self) -> Iterator[Metric]:
        prefix = f"{self._namespace}_store"
        took = HistogramMetricFamily(
            f"{prefix}_operation_duration_seconds", "Time that an operation of the store takes.", labels=["operation"]
        )
        failed = CounterMetricFamily(f"{prefix}_errors", "Operations of the store that failed.", labels=["operation"])
        for operation, durations in self._store.took.items():
            took.add_metric([operation], durations.cumulate(), durations.seconds)
            failed.add_metric([operation], self._store.failed[operation])
        return iter((took, failed))
