"""A started instance of a provider: its tools, routes and collectors, its switch, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from toolplug import library_types
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.offering import Offering
from toolplug.catalog.plan import CallTracer
from toolplug.errors import InvalidDefinition, Problem, ProviderError
from toolplug.execution.call_hooks import LiveCallHooks
from toolplug.execution.limiters import SourceSwitch
from toolplug.execution.task_runner import ThreadRunner
from toolplug.providers.entry import DesiredProvider, ProviderEntry, ProviderState
from toolplug.providers.lifecycle import CLOSE_S, DIAGNOSE_S, START_S, await_step, run_step
from toolplug.providers.offering.plans import planned_offering
from toolplug.providers.planning import plan_builder, planned_tools
from toolplug.providers.plugins.implementations import PluginHooks, asking
from toolplug.providers.plugins.registration import RunningPlugin, specifications
from toolplug.providers.plugins.shapes import hooks_of, plugin_of
from toolplug.providers.provider import (
    FunctionProvider,
    SignInEndpoints,
    enter_site,
    forget_start,
    is_started,
)
from toolplug.providers.routes import BoundRoute, MountedRoute, bound_routes
from toolplug.providers.site import ProviderContext, SiteFor

_LOG = logging.getLogger("toolplug.providers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generation:
    """A started provider. `catalog` and `offering` have what it offers in its own order; `close` ends it once."""

    entry: ProviderEntry
    provider: FunctionProvider
    hooks: PluginHooks
    site: ProviderContext
    tracers: Sequence[CallTracer]
    catalog: Catalog
    offering: Offering
    routes: Sequence[BoundRoute]
    collectors: Sequence[library_types.Collector]
    sign_in: SignInEndpoints | None
    switch: SourceSwitch
    threads: ThreadRunner
    services: library_types.CallServices
    drain_s: float

    def switch_off(self, *, keep: bool = False) -> None:
        """Refuse new calls and requests; running ones go on, streams end. `keep`: its provider has another one."""
        # Before the event: whoever waits for `closing` must find the switch closed.
        self.switch.open = False
        if not keep:
            self.site.closing.set()

    @property
    def plugin(self) -> RunningPlugin:
        """The provider for the plugin manager."""
        entry, plugin = self.entry, plugin_of(self.provider)
        return RunningPlugin(
            entry.key,
            plugin,
            self.hooks,
            self.site,
            entry.owner,
            entry.on_failure,
            tuple(self.tracers),
            entry.mount,
            self.sign_in,
        )

    async def diagnosis(self) -> list[Problem]:
        """Return a warning for each text that `diagnose` returns, or one for its failure."""
        # Of one in a process of its own the host knows something, too.
        if "diagnose" not in self.hooks.names and not self.entry.apart:
            return []
        path = f"providers.{self.entry.key}"
        texts: list[str] = []

        async def ask() -> None:
            found: object = await self.provider.diagnose()
            if not isinstance(found, list | tuple):
                raise InvalidDefinition(f"it returned {type(found).__name__}, not a list of texts")
            texts.extend(self.entry.masked(str(text)) for text in found)

        try:
            await await_step(self.entry, "diagnose()", ask, DIAGNOSE_S)
        except ProviderError as error:
            return [Problem(code="diagnose_failed", message=str(error), path=path)]
        return [Problem(code="provider_warning", message=text, path=path) for text in texts]

    async def close(self, hooks: LiveCallHooks | None = None, within_s: float = 0.0, *, keep: bool = False) -> None:
        """Switch off, wait for calls and route handlers, end them after the drain time, then close the provider.

        If it takes part in calls of other providers, wait first for those that began with its hooks, at most
        `within_s` seconds, as their results are still to come. `keep`: another generation goes on with the provider.
        """
        self.switch_off(keep=keep)
        if hooks is not None and (self.hooks.around_calls or self.tracers):
            # The hooks of this provider still wait for results of calls that run in other providers.
            await hooks.drain(within_s)
        if not await self.services.accounting.drain(self.switch, self.drain_s):
            _LOG.warning("%s: still runs calls (%d); closing it", self.entry.owner, self.switch.running)
        # Not joined: a function that hangs keeps its thread, and the provider closes all the same.
        self.threads.close()
        if not keep:
            await _close(self.entry, self.provider, self.site)


async def open_generation(
    wanted: DesiredProvider, services: library_types.CallServices, site_for: SiteFor, running: Generation | None = None
) -> Generation:
    """Create and start a provider. Raises `ProviderError`, after closing what had been started.

    With `running`, its provider goes on under the rules of this entry.
    """
    entry, build = wanted.entry, wanted.build
    if build is None:
        raise ValueError(f"{entry.key!r} is not to be built")
    provider = run_step(entry, "its constructor", build) if running is None else running.provider
    hooks = hooks_of(plugin_of(provider))
    site = site_for(entry.key) if running is None else running.site
    problems = hooks.problems_with(specifications(site.plugins)) if hooks.foreign else hooks.problems
    if problems:
        said = f"{entry.owner}: {'; '.join(problems)}"
        raise ProviderError(said, state=ProviderState.INCOMPATIBLE, fix="fix the signatures in the package")
    try:
        config: object = provider.config  # raises if its `Config` has required fields, and none was given
    except InvalidDefinition as error:
        example = f"{type(provider).__name__}({{…}}), or settings={{…}} in check_provider and running"
        raise ProviderError(f"{entry.owner}: {error}", state=ProviderState.CONFIG_INVALID, fix=example) from error
    switch, threads = SourceSwitch(), ThreadRunner(entry.key)
    site = replace(site, config=config, log=provider.log) if running is None else site
    # Before `start`, which may use the store and the log of its context.
    enter_site(provider, site)
    try:
        if running is None and not is_started(provider):
            await await_step(entry, "start()", lambda: provider.start(site), START_S, while_working=True)
            # Read again: a provider in a process of its own knows its hooks once that has started.
            hooks = hooks_of(plugin_of(provider)) if entry.apart else hooks
        catalog = Catalog(planned_tools(entry, provider, services, switch, threads))
        wanted.check_tools(catalog.definitions())
        return Generation(
            entry=entry,
            provider=provider,
            hooks=hooks,
            site=site,
            tracers=_tracers(entry, provider, hooks, site) if running is None else running.tracers,
            catalog=catalog,
            offering=planned_offering(entry, provider, services, switch, threads),
            routes=run_step(entry, "routes()", lambda: tuple(bound_routes(provider))),
            collectors=run_step(entry, "collectors()", lambda: tuple(provider.collectors())),
            sign_in=_find_sign_in(entry, provider),
            switch=switch,
            threads=threads,
            services=services,
            drain_s=plan_builder(entry, services).drain_s,
        )
    # What was started is closed, unless it is a running provider, which goes on under its old rules.
    except (ProviderError, asyncio.CancelledError):
        if running is None:
            await _close(entry, provider, site)
        raise


def _tracers(
    entry: ProviderEntry, provider: FunctionProvider, hooks: PluginHooks, site: ProviderContext
) -> tuple[CallTracer, ...]:
    """Return the tracers of a plugin. Raises `ProviderError`."""
    name = "call_tracers"
    found = [item.attribute for item in hooks.implementations if item.hook == name]
    asked = (asking(getattr(plugin_of(provider), attribute), name, site) for attribute in found)
    return tuple(tracer for ask in asked for tracer in run_step(entry, f"{name}()", lambda ask=ask: tuple(ask())))


def _find_sign_in(entry: ProviderEntry, provider: FunctionProvider) -> SignInEndpoints | None:
    """Return where callers sign in, as the provider says. Raises `ProviderError` where neither it nor the file does."""
    found = cast("object", run_step(entry, "sign_in_endpoints()", provider.sign_in_endpoints))
    if found is not None and not isinstance(found, SignInEndpoints):
        said = f"{entry.owner}: sign_in_endpoints() returned {type(found).__name__}, not SignInEndpoints or None"
        raise ProviderError(said, state=ProviderState.INCOMPATIBLE, fix="fix it in the package")
    oauth = None if entry.user_auth is None else entry.user_auth.oauth
    # Of one whose workers dial in nothing is known yet.
    if oauth is not None and oauth.issuer is None and found is None and not entry.dialled:
        said = f"{entry.owner}: the provider names nowhere to sign in, and user_auth.oauth has no issuer"
        fix = f"set providers.{entry.key}.user_auth.oauth.issuer"
        raise ProviderError(said, state=ProviderState.CONFIG_INVALID, fix=fix)
    return found


async def _close(entry: ProviderEntry, provider: FunctionProvider, site: ProviderContext) -> None:
    forget_start(provider)
    try:
        await await_step(entry, "aclose()", provider.aclose, CLOSE_S)
    except ProviderError as error:
        if error.__cause__ is None:  # what it raised is in the log already
            _LOG.error("%s", error)
    finally:
        site.threads.close()


def mounted_routes(generation: Generation) -> tuple[MountedRoute, ...]:
    entry = generation.entry
    return tuple(
        MountedRoute(
            entry.key, route, entry.mount, route.public and entry.public_routes, generation.switch, entry.owner
        )
        for route in generation.routes
    )
