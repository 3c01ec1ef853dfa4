"""A started instance of a provider: its tools, routes and collectors, its switch, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.registry import Collector

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.offering import Offering
from toolplug.errors import InvalidDefinition, ProviderError
from toolplug.execution.limits import SourceSwitch
from toolplug.execution.plans import CallServices
from toolplug.execution.task_runner import ThreadRunner
from toolplug.providers.entry import DesiredProvider, ProviderEntry, ProviderState
from toolplug.providers.hooks import hook_problems
from toolplug.providers.lifecycle import CLOSE_S, START_S, awaited, called
from toolplug.providers.offering.plans import planned_offering
from toolplug.providers.planning import drain_seconds, planned_tools
from toolplug.providers.provider import FunctionProvider, check_config, forget_start, is_started
from toolplug.providers.routes import BoundRoute, MountedRoute, bound_routes
from toolplug.providers.site import SiteFor

_LOG = logging.getLogger("toolplug.providers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generation:
    """A started provider. `catalog` and `offering` have what it offers in its own order; `close` ends it once."""

    entry: ProviderEntry
    provider: FunctionProvider
    catalog: Catalog
    offering: Offering
    routes: Sequence[BoundRoute]
    collectors: Sequence[Collector]
    switch: SourceSwitch
    threads: ThreadRunner
    drain_s: float

    def switch_off(self) -> None:
        """Refuse new calls and requests; running ones go on."""
        self.switch.open = False

    async def close(self, observed: Iterable[Generation] = ()) -> None:
        """Switch off, wait for calls and route handlers (at most the drain time), then close the provider.

        If it has host-wide hooks, wait first for the running calls of `observed` generations, each for at most its own
        drain time, as their results are still to come.
        """
        self.switch_off()
        await asyncio.gather(*(other.switch.drained(other.drain_s) for other in observed))
        if not await self.switch.drained(self.drain_s):
            _LOG.warning("%s: still runs calls (%d); closing it", self.entry.owner, self.switch.running)
        self.threads.close()
        await _closed(self.entry, self.provider)


async def opened(wanted: DesiredProvider, services: CallServices, site_for: SiteFor) -> Generation:
    """Create and start a provider. Raises `ProviderError`, after closing what had been started."""
    entry, build = wanted.entry, wanted.build
    if build is None:
        raise ValueError(f"{entry.key!r} is not to be built")
    provider = called(entry, "its constructor", build)
    problems = hook_problems(type(provider))
    if problems:
        said = f"{entry.owner}: {'; '.join(problems)}"
        raise ProviderError(said, state=ProviderState.INCOMPATIBLE, fix="fix the signatures in the package")
    try:
        check_config(provider)
    except InvalidDefinition as error:
        example = f"{type(provider).__name__}({{…}}), or settings={{…}} in check_provider and running"
        raise ProviderError(f"{entry.owner}: {error}", state=ProviderState.CONFIG_INVALID, fix=example) from error
    switch, threads = SourceSwitch(), ThreadRunner(entry.key)
    try:
        if not is_started(provider):
            await awaited(entry, "start()", lambda: provider.start(site_for(entry.key)), START_S)
        return Generation(
            entry=entry,
            provider=provider,
            catalog=Catalog(planned_tools(entry, provider, services, switch, threads)),
            offering=planned_offering(entry, provider, services, switch, threads),
            routes=called(entry, "routes()", lambda: tuple(bound_routes(provider))),
            collectors=called(entry, "collectors()", lambda: tuple(provider.collectors())),
            switch=switch,
            threads=threads,
            drain_s=drain_seconds(entry, services),
        )
    except (ProviderError, asyncio.CancelledError):
        await _closed(entry, provider)
        raise


async def _closed(entry: ProviderEntry, provider: FunctionProvider) -> None:
    forget_start(provider)
    try:
        await awaited(entry, "aclose()", provider.aclose, CLOSE_S)
    except ProviderError as error:
        if error.__cause__ is None:  # what it raised is in the log already
            _LOG.error("%s", error)


def mounted(generation: Generation) -> tuple[MountedRoute, ...]:
    """Return the routes of a generation."""
    entry = generation.entry
    return tuple(
        MountedRoute(
            entry.key, route, entry.mount, route.public and entry.public_routes, generation.switch, entry.owner
        )
        for route in generation.routes
    )
