"""The records of a host: its store, opened as the configuration says, and the processes that share it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from toolplug.cluster.limits import ClusterLimits
from toolplug.cluster.processes import Processes, ProcessRequests
from toolplug.execution.resolved_limits import DEFAULT_DRAIN_S
from toolplug.host.file.configuration import Configuration, CurrentConfiguration
from toolplug.host.operations import MeasuredStore
from toolplug.host.quotas.stored_bytes import CountingStore
from toolplug.sqlite.serving_lock import is_served_shared, serving_lock, warn_of_workers
from toolplug.stores.open import enter_with_retries
from toolplug.stores.store import Store


class HostRecords(NamedTuple):
    """The open store, the measured one that it uses, and what goes on between the processes that share it.

    `cluster` has the limits that hold for all of them together, None if the store is not shared. `serving`: whether
    this process holds the sessions of the store.
    """

    store: Store
    measured: MeasuredStore
    processes: Processes
    requests: ProcessRequests
    cluster: ClusterLimits | None
    serving: bool


@asynccontextmanager
async def open_records(current: CurrentConfiguration, *, serving: bool) -> AsyncGenerator[HostRecords]:
    """Open the store and join the processes that share it; `serving`: this one holds the sessions of the store."""
    async with (
        _opened_store(current, alone=serving) as (store, measured),
        _processes(store, serving=serving) as (processes, cluster),
    ):
        yield HostRecords(store, measured, processes, ProcessRequests(store, processes), cluster, serving)


def _longest_drain_s(configuration: Configuration) -> float:
    """Return how long another process that serves the store may still drain."""
    general = configuration.settings.limits.drain
    drains = [item.entry.limits.drain for item in configuration.providers.wanted.values() if item.build is not None]
    default = DEFAULT_DRAIN_S if general is None else general
    return max((default if own is None else own for own in drains), default=default)


@asynccontextmanager
async def _opened_store(current: CurrentConfiguration, *, alone: bool) -> AsyncGenerator[tuple[Store, MeasuredStore]]:
    """Open the store, served by this process `alone` if set, and counting stored bytes if a quota limits them.

    The second store is the measured one, which the first one uses.
    """
    settings, named = current().settings, current().store
    async with AsyncExitStack() as life:
        if not alone and named.file is not None and is_served_shared(named.file):
            # The file does not say so, but `serve --workers` has opened it this way, and a command must open it alike.
            named = replace(named, shared=True)
        opening = named.open()
        if alone and named.file is not None:
            # On a restart the process before may still drain its calls; it holds the lock until then.
            wait_s = _longest_drain_s(current())
            await life.enter_async_context(serving_lock(named.file, shared=opening.shared, wait_s=wait_s))
        store = measured = MeasuredStore(opening)
        if settings.quotas.sets("stored_bytes"):
            store = CountingStore(store, lambda: current().settings.quotas)
        if alone:
            # Only the process that serves waits for a store that is away at the start. A command reports it at once.
            await enter_with_retries(store)
            life.push_async_exit(store)
        else:
            await life.enter_async_context(store)
        if alone and named.in_memory:
            warn_of_workers()
        yield store, measured


@asynccontextmanager
async def _processes(store: Store, *, serving: bool) -> AsyncGenerator[tuple[Processes, ClusterLimits | None]]:
    """Join the processes of the store, with the limits that hold for all of them; None if it is not shared."""
    async with Processes(store, serving=serving) as processes:
        if not processes.joined:
            yield processes, None
            return
        async with ClusterLimits(store, processes) as cluster:
            yield processes, cluster
