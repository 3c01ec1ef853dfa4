"""The registry: started providers as one tool executor, with their routes and metrics."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import NamedTuple, Self

from toolplug import library_types
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog, Conflict, merged
from toolplug.errors import ConfigError, Problem, ProviderError
from toolplug.execution.accounting import DEFAULT_NAMESPACE, CallAccounting
from toolplug.execution.live import LiveCatalog
from toolplug.execution.metrics import CallMetrics
from toolplug.execution.plans import CallServices, ToolsOf
from toolplug.providers.collectors import FINDING, Collected, LeftOut, ProviderCollectors
from toolplug.providers.entry import (
    DesiredProvider,
    ProviderEntry,
    ProviderRecord,
    ProviderState,
    failed_record,
    record_of,
)
from toolplug.providers.generation import Generation, mounted_routes, open_generation
from toolplug.providers.plugins.registration import PluginManager, ProviderChanges
from toolplug.providers.plugins.shapes import ProviderLike, desired_providers, plugin_of
from toolplug.providers.routes import NO_PARTS, DeclaredRoutes, MountedRoute, PartPaths, route_problems
from toolplug.providers.site import CallHookSwitch, ProviderContext, SiteFor, TemporaryRoot, stored_sites
from toolplug.runtime.slips import check_event_loop, require_async_with, suggest_options
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.search.tools import THRESHOLD, ToolSearch
from toolplug.stores.memory import MemoryStore

_LOG = logging.getLogger("toolplug.providers")

_FILES = "toolplug.host.file.provider_entries"
"""Reads configuration files: a layer above this one, imported for those who have a file."""


class ProviderSlot(NamedTuple):
    """One entry and its outcome; `generation` is None while it does not run, `failure` is the reason if it failed."""

    entry: ProviderEntry
    generation: Generation | None
    record: ProviderRecord
    failure: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryServices:
    """The services of a host for its registry, and the manager of its plugins.

    `tail()` returns tools to list after the providers', the same at each call, if results of tools are kept.
    `resources` are opened and closed with the registry.
    """

    calls: CallServices
    site_for: SiteFor
    namespace: str = DEFAULT_NAMESPACE
    plugins: PluginManager = field(default_factory=PluginManager)
    tail: Callable[[], Catalog] = Catalog
    resources: tuple[AbstractAsyncContextManager[object], ...] = ()


_FOR_USERS = frozenset(
    {
        *("answer", "call", "catalog", "default_context", "execute", "for_anthropic", "for_gemini", "for_openai"),
        *("from_yaml", "plugins", "records", "routes", "subscribe", "tools_of"),
    }
)


@require_async_with
class FunctionRegistry(LiveCatalog):
    """Providers as one tool executor; they run while the registry is entered (`async with`).

    `providers` maps keys to providers, or is a sequence, whose keys are the names of classes in snake case. Each is an
    instance, started or not, a class, or a function with `@tool`. If two have a tool of the same name, the first has
    it. `metrics` receives the counters and the providers' collectors while the registry is entered. Raises
    `InvalidDefinition` for anything else, and on entry `ConfigError` if a required provider does not start; those
    already started are closed.

    ```python
    import asyncio

    from toolplug import FunctionRegistry, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def main():
        async with FunctionRegistry([price]) as registry:
            assert [each["function"]["name"] for each in registry.for_openai()] == ["price"]
            assert (await registry.call("price", item="tea")).output == "tea: 3.50 EUR"

    asyncio.run(main())
    ```
    """

    @suggest_options
    def __init__(
        self,
        providers: Mapping[str, ProviderLike] | Sequence[ProviderLike] = (),
        *,
        metrics: library_types.CollectorRegistry | None = None,
        services: RegistryServices | None = None,
    ) -> None:
        self._services = services if services is not None else _without_host(self.within)
        # Monitors that are added later have to reach the hooks of calls, which are made ahead.
        self._services.plugins.on_monitor = self._publish_hooks
        self._life = AsyncExitStack()
        super().__init__(self._services.calls.unknown)
        self._instances = desired_providers(providers)
        self._open = False
        self._metrics = metrics
        self._provider_collectors = ProviderCollectors(self._collect, self._services.namespace)
        self._collectors = (
            CallMetrics(self._services.calls.accounting, self._services.namespace).as_collector(),
            self._provider_collectors.as_collector(),
        )
        self._slots: tuple[ProviderSlot, ...] = ()
        self._of_parts = NO_PARTS
        self._routes: tuple[MountedRoute, ...] = ()
        self._conflicts: frozenset[tuple[str, str, str]] = frozenset()
        self._own: dict[str, Catalog] = {}
        self._parts: dict[str, LiveCatalog] = {}
        self._changing = asyncio.Lock()
        self._closing = BackgroundTasks()
        self._changes = ProviderChanges()
        self.search: ToolSearch = ToolSearch(self._services.calls)
        self._ending: dict[Generation, asyncio.Task[None]] = {}

    @classmethod
    def from_yaml(
        cls,
        path: str | os.PathLike[str],
        *,
        environ: Mapping[str, str] | None = None,
        metrics: library_types.CollectorRegistry | None = None,
    ) -> Self:
        """Return a registry of the `providers` section of a configuration file; other sections are ignored.

        `environ` has the values of `${NAME}`; None is the environment of the process. Imports the packages of enabled
        entries. Raises `ConfigError` with all problems.
        """
        registry = cls(metrics=metrics)
        registry._instances = import_module(_FILES).read_providers(path, environ)
        return registry

    def __dir__(self) -> list[str]:
        """Return the names that completion shows: those for users. What hosts call has names, too."""
        return sorted({*_FOR_USERS, *(name for name in super().__dir__() if name.startswith("__"))})

    async def __aenter__(self) -> Self:
        check_event_loop()
        # What was opened is closed again if a provider that is required does not start.
        async with AsyncExitStack() as life:
            await self._services.calls.runner.open()
            life.push_async_callback(self._services.calls.runner.aclose)
            for resource in self._services.resources:
                await life.enter_async_context(resource)
            life.push_async_callback(self._end)
            await self.apply(self._instances)
            self._life = life.pop_all()
        # Last: until then a call is answered with `closed_because`.
        self._open = True
        if self._metrics is not None:
            for collector in self._collectors:
                self._metrics.register(collector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._metrics is not None:
            for collector in self._collectors:
                self._metrics.unregister(collector)
        self._open = False
        await self._life.aclose()

    async def _end(self) -> None:
        """Switch off all providers, and wait until they are closed."""
        await self.apply(())
        await self._changes.end()
        await self._closing.wait()

    @property
    def closed_because(self) -> str:
        """Why no tool can be called while the registry is not entered."""
        return "" if self._open else "its registry is not entered; call it inside `async with registry:`"

    @property
    def routes(self) -> tuple[MountedRoute, ...]:
        """The routes of the active providers; the same object as long as nothing changes."""
        return self._routes

    @property
    def unknown(self) -> library_types.UnknownCalls:
        """What answers calls of unknown tools."""
        return self._unknown

    @property
    def accounting(self) -> CallAccounting:
        """The counters of this registry's calls."""
        return self._services.calls.accounting

    @property
    def plugins(self) -> PluginManager:
        """The plugin manager: every running provider is registered there under its key."""
        return self._services.plugins

    def tools_of(self, key: str) -> LiveCatalog:
        """Return the tools of one provider, also those whose names an earlier provider has; none if it does not run."""
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = LiveCatalog(self._unknown, self._own.get(key, EMPTY_CATALOG))
        return part

    def running(self) -> dict[str, Generation]:
        """The running generation of each key, in order."""
        return {slot.entry.key: slot.generation for slot in self._slots if slot.generation is not None}

    def records(self) -> tuple[ProviderRecord, ...]:
        """Return the current status of all configured providers, in order."""
        listed: dict[str, list[str]] = {}
        for name, tool in self.catalog.items():
            listed.setdefault(tool.definition.ref.source, []).append(name)
        return tuple(self._record(slot, listed.get(slot.entry.key, ())) for slot in self._slots)

    def stop(self) -> None:
        """End the streams of the providers' routes; calls go on."""
        for generation in self.running().values():
            generation.site.closing.set()

    def idle(self) -> tuple[ProviderRecord, ...]:
        """Return the configured providers that do not run, in order."""
        return tuple(slot.record for slot in self._slots if slot.generation is None)

    @property
    def left_out_metrics(self) -> tuple[LeftOut, ...]:
        """Return the providers' metrics that scrapes have omitted so far."""
        return tuple(self._provider_collectors.left_out)

    def failures(self) -> dict[str, Problem]:
        """Return, by key, why providers did not start that are not required."""
        return {slot.entry.key: slot.failure for slot in self._slots if slot.failure is not None}

    async def apply(self, wanted: Sequence[DesiredProvider], of_parts: PartPaths = NO_PARTS) -> None:
        """Run these providers: unchanged ones keep running; others are started, replaced at once, and drained.

        `of_parts` are paths of the parts of plugins, as in `route_problems`. Raises `ConfigError` with all
        required providers that do not start; then nothing has changed.
        """
        async with self._changing:
            slots = await self._begin(wanted, of_parts)
            self._of_parts = of_parts
            kept = {slot.generation for slot in self._slots if slot.generation is not None}
            active = [slot.generation for slot in slots if slot.generation is not None]
            # From here on calls reach the new providers, before the old ones are drained: no call finds none.
            self._use(slots)
            longest_s = max((generation.drain_s for generation in kept), default=0.0)
            for generation in kept.difference(active):
                # A module or an object goes on under other rules: only its generation ends.
                keep = any(generation.provider is other.provider for other in active)
                self._retire(generation, longest_s, keep=keep)

    async def _relist(self, key: str) -> None:
        """List the tools, routes and hooks of a running provider again, which goes on.

        Raises `ConfigError` for a route that another provider has, and `ProviderError`; then nothing has changed.
        """
        async with self._changing:
            generation = self.running().get(key)
            if generation is None:  # it was stopped meanwhile
                return
            wanted = DesiredProvider(generation.entry, lambda: generation.provider)
            listed = await open_generation(wanted, self._services.calls, self._context_of, generation)
            slots = tuple(
                slot._replace(generation=listed) if slot.generation is generation else slot for slot in self._slots
            )
            problems = _route_problems(slots, self._of_parts)
            if problems:
                await listed.close(keep=True)
                raise ConfigError(problems)
            self._use(slots)
            self._retire(generation, generation.drain_s, keep=True)

    def _use(self, slots: tuple[ProviderSlot, ...]) -> None:
        """Have calls and requests reach the running providers of these slots."""
        active = [slot.generation for slot in slots if slot.generation is not None]
        self._slots = slots
        self._routes = tuple(item for generation in active for item in mounted_routes(generation))
        self._list(active)
        self._publish_records()

    async def _begin(self, wanted: Sequence[DesiredProvider], of_parts: PartPaths) -> tuple[ProviderSlot, ...]:
        """Start those of these that do not run as they are wanted. Raises `ConfigError`; then none has been started."""
        running = {slot.entry.key: slot for slot in self._slots if slot.generation is not None}
        begun: list[Generation] = []
        try:
            # All start together: each waits for its own network, and the slowest decides.
            outcomes = await asyncio.gather(*(self._state_of(item, running, begun) for item in wanted))
        # A start that is given up leaves nothing running.
        except asyncio.CancelledError:
            await self._take_back(begun)
            raise
        slots = tuple(item for item in outcomes if isinstance(item, ProviderSlot))
        # Their routes are looked at after the starts, since only a started provider can say which it has.
        problems = [item for item in outcomes if isinstance(item, Problem)] or _route_problems(slots, of_parts)
        if problems:
            await self._take_back(begun)
            raise ConfigError(problems)
        return slots

    async def _take_back(self, begun: Sequence[Generation]) -> None:
        """Close what was started for a change that failed; a provider that runs goes on."""
        running = [generation.provider for generation in self.running().values()]
        await asyncio.gather(*(each.close(keep=any(each.provider is other for other in running)) for each in begun))

    async def _state_of(
        self, wanted: DesiredProvider, running: Mapping[str, ProviderSlot], begun: list[Generation]
    ) -> ProviderSlot | Problem:
        """Start one entry, add it to `begun`, and return the outcome; a problem if it is required and fails."""
        entry = wanted.entry
        if wanted.build is None:
            return ProviderSlot(entry, None, wanted.record or record_of(entry, ProviderState.DISABLED))
        same = running.get(entry.key)
        # Entries are compared without their places in the file.
        if same is not None and same.entry == entry:
            wanted.release()
            return same
        if self.plugins.is_blocked(entry.key):
            reason, fix = f"host.plugins.set_blocked({entry.key!r}) blocks it", "remove that call"
            return ProviderSlot(entry, None, record_of(entry, ProviderState.DISABLED, reason, fix))
        running_one = same.generation if same is not None and self._runs(same, wanted) else None
        if running_one is None and wanted.single is not None:
            if any(plugin_of(each.provider) is wanted.single for each in self.running().values()):
                message = "is one module or object, and cannot be started with other settings while it runs"
                hint = "restart the host; a class or a function of (key, config) can change while the host runs"
                return entry.problem("needs_restart", message, hint)
            await self._wait_for_close(wanted.single)
        try:
            generation = await open_generation(wanted, self._services.calls, self._context_of, running_one)
        except ProviderError as error:
            if not wanted.inspected:
                if entry.required:
                    return entry.failure(error)
                _LOG.error("%s; going on without it (required: false); %s", error, error.fix)
            return ProviderSlot(entry, None, failed_record(entry, error), entry.failure(error))
        begun.append(generation)
        return ProviderSlot(entry, generation, record_of(entry, ProviderState.ACTIVE))

    def _runs(self, slot: ProviderSlot, wanted: DesiredProvider) -> bool:
        """Return whether the slot runs the same module or object with the same settings, and only rules differ."""
        generation = slot.generation
        return (
            generation is not None
            and wanted.single is not None
            and plugin_of(generation.provider) is wanted.single
            and slot.entry.settings == wanted.entry.settings
        )

    async def _wait_for_close(self, plugin: object) -> None:
        """Wait until a module or object that ran before is closed, before it is started again."""
        # A copy: an ending that is over removes itself.
        for generation, closing in [*self._ending.items()]:
            if plugin_of(generation.provider) is plugin:
                # `wait`, which raises nothing: how the old one ended is no error of the new one.
                await asyncio.wait({closing})

    def _retire(self, generation: Generation, within_s: float, *, keep: bool) -> None:
        generation.switch_off(keep=keep)
        closing = generation.close(self._services.calls.hooks, within_s, keep=keep)
        task = self._closing.start(closing, f"toolplug-drain-{generation.entry.key}")
        self._ending[generation] = task
        task.add_done_callback(lambda _: self._ending.pop(generation, None))

    def _context_of(self, key: str) -> ProviderContext:
        return replace(
            self._services.site_for(key),
            plugins=self.plugins,
            call_hooks=CallHookSwitch(self._publish_hooks),
            console_pages=self.plugins.console_pages,
            changed=self._publish_records,
            relist=partial(self._relist, key),
        )

    def _publish_records(self) -> None:
        """Pass the records on to the plugins that follow them: a provider's process has ended, or runs again."""
        followers = self.plugins.followers()
        self._changes.publish(followers, self.records() if followers else ())

    def _publish_hooks(self) -> None:
        """Use the hooks of the running plugins, and the monitors of the manager, for every call from now on."""
        calls = self._services.calls
        calls.hooks.replace(self.plugins.call_hooks(calls.runner, calls.accounting.watch))

    def _list(self, generations: Sequence[Generation]) -> None:
        """Publish the tools and hooks of the active providers; warn once of each name that an earlier one has."""
        self.plugins.run([item.plugin for item in generations])
        self._publish_hooks()
        self.search.rankers = self.plugins.rankers()
        self.plugins.ask_describers()
        self._own = {item.entry.key: item.catalog for item in generations}
        parts = list(self._own.values())
        if any(tool.plan.artifacts for part in parts for tool in part.values()):
            parts.append(self._services.tail())
        plain, conflicts = merged(parts)
        catalog = self.search.add_search_tools(plain)
        if catalog is plain and plain.deferred >= THRESHOLD:
            _LOG.warning(
                "%d tools are deferred, and all are offered at once: a provider has a tool search_tools or call_tool",
                plain.deferred,
                extra=FINDING,
            )
        self._warn(conflicts)
        self.publish(catalog)
        for key, part in self._parts.items():
            part.publish(self._own.get(key, EMPTY_CATALOG))
        self._services.calls.offering_changed.send()

    def _warn(self, conflicts: Sequence[Conflict]) -> None:
        met: set[tuple[str, str, str]] = set()
        counters = self.accounting.counters
        for key, part in self._own.items():
            for tool in part.values():
                counters(key, tool.definition.ref.name).listed = True
        for name, winner, loser in conflicts:
            counters(loser.ref.source, loser.ref.name).listed = False
            met.add((name, winner.ref.source, loser.ref.source))
            if (name, winner.ref.source, loser.ref.source) not in self._conflicts:
                _LOG.warning(
                    "the tool %r of provider %r is not listed: provider %r comes first in the order and has it already",
                    name,
                    loser.ref.source,
                    winner.ref.source,
                    extra=FINDING,
                )
        self._conflicts = frozenset(met)

    def _record(self, slot: ProviderSlot, listed: Sequence[str]) -> ProviderRecord:
        """Return the status of one provider, whose tools that are `listed` have these names."""
        generation = slot.generation
        if generation is None:
            return slot.record
        routes = tuple(item.label for item in mounted_routes(generation))
        record = replace(slot.record, tools=tuple(listed), routes=routes, hooks=generation.hooks.names)
        if slot.entry.apart and (down := getattr(generation.provider, "restarting", "")):
            state, fix = getattr(generation.provider, "down_as")  # noqa: B009  of an `ApartProvider`, a layer above
            return replace(record, state=state, reason=down, fix=fix)
        if slot.entry.apart and (warning := getattr(generation.provider, "warning", "")):
            record = replace(record, reason=warning)
        if listed or not generation.catalog:
            return record
        winners = sorted(
            {self.catalog[name].definition.ref.source for name in generation.catalog if name in self.catalog}
        )
        return replace(
            record,
            state=ProviderState.SHADOWED,
            reason=f"every tool of it has the name of one of {', '.join(map(repr, winners))}, which come first",
            fix="move it up in the file, or disable the tools of the other that it should replace",
        )

    def _collect(self) -> list[Collected]:
        generations = [slot.generation for slot in self._slots if slot.generation is not None]
        types = Counter(generation.entry.type for generation in generations)
        return [
            Collected(generation.entry.owner, types[generation.entry.type] > 1, generation.collectors)
            for generation in generations
        ]


def _without_host(tools_of: ToolsOf) -> RegistryServices:
    """Return the services of a registry without a host: records in memory, files in a temporary directory."""
    store, root = MemoryStore(), TemporaryRoot()
    return RegistryServices(
        calls=CallServices(tools_of=tools_of),
        site_for=stored_sites(lambda: store, root),
        resources=(store, root),
    )


def _route_problems(slots: Sequence[ProviderSlot], of_parts: PartPaths) -> list[Problem]:
    running = [(slot.entry, slot.generation.routes) for slot in slots if slot.generation is not None]
    declared = (DeclaredRoutes(entry, [(each.method, each.path) for each in routes]) for entry, routes in running)
    return route_problems(declared, of_parts)
