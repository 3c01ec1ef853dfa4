"""The plugin manager of a host: pluggy's, with the hooks of toolplug and the order of the configuration.

pluggy does registration, signatures, order, blocking, listing and monitoring. Isolation, coroutines and deadlines are
toolplug's own (`execution/call_hooks`): in pluggy's loop one exception ends the call for all, and a coroutine is a
value like any other.

The hook `provider_changed`: the records of providers for every plugin that follows them.

pluggy's historic calls are not used: they keep every call, and replay them within `register`, where one that raises
leaves a plugin registered by half. Here a plugin gets the present records first, then for each key the newest change.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

import pluggy
from pluggy import HookImpl, HookimplOpts, Result

from toolplug import hookspecs
from toolplug.catalog.catalog import CachedValue, Catalog
from toolplug.catalog.plan import CallRunner, CallTracer
from toolplug.crashes import CodeOwner, log_crash
from toolplug.execution.call_hooks import CallHooks, Monitor
from toolplug.execution.isolated_hooks import CallHook, FailureCounts, OnFailure, OwnedTracer
from toolplug.mcp_extensions import McpExtension
from toolplug.providers.entry import ProviderRecord, ProviderState
from toolplug.providers.offering.definitions import ConsolePage, OpenToolsetSource
from toolplug.providers.plugins.implementations import HOOKS, PROJECT, PluginHooks, asking, taken_arguments
from toolplug.providers.provider import SignInEndpoints
from toolplug.providers.site import ProviderContext
from toolplug.runtime.tasks import BackgroundTasks
from toolplug.search.tools import ToolRanker

CHANGED_S = 5.0
"""How long one call of the hook may take."""

_WHAT = "provider_changed()"


class ChangeFollower(NamedTuple):
    """One implementation of a hook that takes one thing; `identity` is the same object as long as its plugin runs."""

    identity: object
    ask: Callable[[Any], object]
    owner: CodeOwner

    async def tell(self, change: object, what: str, then: str) -> None:
        """Ask it, for `CHANGED_S` at most. A failure is logged: `what` has failed, and `then` is what comes of it."""
        try:
            async with asyncio.timeout(CHANGED_S):
                value = self.ask(change)
                if inspect.isawaitable(value):
                    await value
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # A plugin may raise a cancellation of its own, which ends its call only; one of this task goes on.
            if task is not None and task.cancelling():
                raise
        except BaseException as error:  # noqa: BLE001  code of a plugin, a SystemExit included
            log_crash(what, error, self.owner, then=then)


@dataclass(slots=True, eq=False)
class _Following:
    follower: ChangeFollower
    seen: dict[str, ProviderRecord] = field(default_factory=dict[str, ProviderRecord])
    waiting: dict[str, ProviderRecord] = field(default_factory=dict[str, ProviderRecord])
    task: asyncio.Task[None] | None = None


class ProviderChanges:
    """Passes on records in the background, to each follower one at a time."""

    def __init__(self) -> None:
        self._following: dict[int, _Following] = {}
        self._tasks = BackgroundTasks()

    def publish(self, followers: Sequence[ChangeFollower], records: Iterable[ProviderRecord]) -> None:
        """Pass these records, which are those of all providers now, to these followers and no others."""
        # What is left in `before` afterwards belongs to plugins that no longer run.
        before, self._following = self._following, {}
        now = {record.key: record for record in records} if followers else {}
        for follower in followers:
            # By identity: a plugin that goes on under other rules has seen the records already.
            following = before.pop(id(follower.identity), None) or _Following(follower)
            self._following[id(follower.identity)] = following
            gone = {key: _mark_removed(record) for key, record in following.seen.items() if key not in now}
            for key, record in (now | gone).items():
                if following.seen.get(key) != record:
                    following.seen[key] = following.waiting[key] = record
            for key in gone:
                del following.seen[key]
            # One task a follower, so that it hears of one change at a time and in their order.
            if following.waiting and following.task is None:
                following.task = self._tasks.start(_pass_on(following), f"toolplug-changes-{follower.owner.key}")
        for following in before.values():
            if following.task is not None:
                following.task.cancel()

    async def end(self) -> None:
        """Stop passing on records."""
        await self._tasks.cancel()


def _mark_removed(record: ProviderRecord) -> ProviderRecord:
    return replace(
        record, state=ProviderState.DISABLED, reason="removed from the configuration", fix="", tools=(), routes=()
    )


async def _pass_on(following: _Following) -> None:
    while following.waiting:
        record = following.waiting.pop(next(iter(following.waiting)))
        await following.follower.tell(record, _WHAT, f"it missed a change of {record.key!r}")
        # A plugin that answers at once would otherwise pass on a hundred records in one turn of the loop.
        await asyncio.sleep(0)
    following.task = None


T = TypeVar("T")


class ToolDescriber(NamedTuple):
    """An implementation of `describe_tools`, the plugin that it comes from, and the key of that plugin's tools."""

    ask: Callable[[Catalog], object]
    owner: CodeOwner
    key: str

    def describe(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the plugin's descriptions of its own tools; as it was if the plugin fails."""
        if not any(tool.definition.ref.source == self.key for tool in catalog.values()):
            return catalog
        try:
            texts = self.ask(catalog)
            if texts is None:
                return catalog
            if not isinstance(texts, Mapping):
                raise TypeError(f"{type(texts).__name__} is no mapping")
            return catalog.with_descriptions(self._own(catalog, cast("Mapping[object, object]", texts)))
        except Exception as error:  # noqa: BLE001  code of a plugin
            log_crash("describe_tools()", error, self.owner, then="its tools are described as always")
            return catalog

    def _own(self, catalog: Catalog, texts: Mapping[object, object]) -> Mapping[str, str]:
        return {
            tool.definition.name: str(texts[tool.definition.name])
            for tool in catalog.values()
            if tool.definition.ref.source == self.key and tool.definition.name in texts
        }


class ToolDescriptions:
    """Asks the plugins with `describe_tools`, for each catalog once."""

    def __init__(self) -> None:
        self.use(())

    def use(self, describers: Sequence[ToolDescriber]) -> None:
        """Ask these from now on."""

        def describe(catalog: Catalog) -> Catalog:
            for each in describers:
                catalog = each.describe(catalog)
            return catalog

        self._described: CachedValue | None = CachedValue(describe) if describers else None

    def describe(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the descriptions that fit it."""
        return catalog if self._described is None else self._described(catalog)


_Before = Callable[[str, Sequence[HookImpl], Mapping[str, Any]], None]
_After = Callable[[Result[Any], str, Sequence[HookImpl], Mapping[str, Any]], None]


class RunningPlugin(NamedTuple):
    """A started plugin under its key: what is registered, its hooks, context, tracers and `mount`.

    `sign_in` is where callers sign in to the system behind it.
    """

    key: str
    plugin: object
    hooks: PluginHooks
    site: ProviderContext
    owner: CodeOwner
    on_failure: OnFailure
    tracers: Sequence[CallTracer] = ()
    mount: str = ""
    sign_in: SignInEndpoints | None = None


class PluginManager(pluggy.PluginManager):
    """The plugins of one host, each under its key in the configuration.

    Use it to list plugins and their hooks, to monitor and trace what is asked of them, and to block one by
    `set_blocked(key)` before the host is entered. Plugins are added by the configuration, or by
    `open_host(config, providers=…)`; `register` and `unregister` raise `RuntimeError`.
    """

    def __init__(self) -> None:
        super().__init__(PROJECT)
        self.add_hookspecs(hookspecs)
        self._monitors: tuple[Monitor, ...] = ()
        self._running: tuple[RunningPlugin, ...] = ()
        self.descriptions: ToolDescriptions = ToolDescriptions()
        # Set only while the host itself registers: pluggy's own methods are public, and a plugin may call them.
        self._admitted: Mapping[str, HookimplOpts] | None = None
        self.on_monitor: Callable[[], None] = lambda: None

    def register(self, plugin: object, name: str | None = None) -> str | None:
        """Raise `RuntimeError`: the host registers its plugins."""
        if self._admitted is None:
            raise RuntimeError("plugins are added by the configuration, or by open_host(config, providers=…)")
        return super().register(plugin, name)

    def unregister(self, plugin: object = None, name: str | None = None) -> Any:
        """Raise `RuntimeError` for a running plugin: the host removes its plugins."""
        if self._admitted is None and (plugin is not None or self.has_plugin(name or "")):
            raise RuntimeError("a running plugin is removed by `await host.disable(key, by=…)` or by a reload")
        return super().unregister(plugin, name)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> HookimplOpts | None:
        """Return the options of a hook that was found when the plugin was checked; None for any other attribute."""
        return None if self._admitted is None else self._admitted.get(name)

    def add_hookspecs(self, module_or_class: ModuleType | type) -> None:
        """Add the hooks that a plugin or the host's code specifies; those that it has added already stay.

        Plugins implement them with `@hookimpl`. Raises `PluginValidationError` if a running plugin implements one with
        other arguments, and `ValueError` for a hook that exists.
        """
        marked = {
            name: getattr(module_or_class, name)
            for name in dir(module_or_class)
            if self.parse_hookspec_opts(module_or_class, name) is not None
        }
        known = {name for name, function in marked.items() if _find_specification(self, name) is function}
        if not marked or known != set(marked):
            new = {name: staticmethod(function) for name, function in marked.items() if name not in known}
            super().add_hookspecs(type("Hooks", (), new))

    def specify(self, hooks: Mapping[str, Callable[..., object]]) -> None:
        """Add the hooks that plugins specify themselves, except those that are there: a reload may bring others."""
        new = {
            name: staticmethod(function) for name, function in hooks.items() if _find_specification(self, name) is None
        }
        if new:
            super().add_hookspecs(type("Hooks", (), new))

    def add_hookcall_monitoring(self, before: _Before, after: _After) -> Callable[[], None]:
        """Call `before` and `after` around each hook, those around calls included; return what ends that.

        A monitor that raises is logged.
        """
        undo = super().add_hookcall_monitoring(before, after)
        monitor = Monitor(before, after)
        self._monitors = (*self._monitors, monitor)
        self.on_monitor()

        def end() -> None:
            undo()
            self._monitors = tuple(each for each in self._monitors if each is not monitor)
            self.on_monitor()

        return end

    def run(self, plugins: Sequence[RunningPlugin]) -> None:
        """Register these plugins, in the order in which they are asked, in place of all that ran.

        pluggy asks the newest first, so the last is registered first.
        """
        with self._admitting({}):
            for old in self._running:
                super().unregister(name=old.key)
        # All are registered anew: pluggy has no way to change the order of what is registered.
        for new in reversed(plugins):
            admitted = (*new.hooks.implementations, *(item.implementation for item in new.hooks.foreign))
            with self._admitting({item.attribute: item.options for item in admitted}):
                super().register(new.plugin, new.key)
        self._running = tuple(plugins)

    def sign_in_of(self, key: str) -> SignInEndpoints | None:
        """Return where callers sign in to the system behind a running provider, as far as it says so."""
        return next((each.sign_in for each in self._running if each.key == key), None)

    def hooks_of(self, key: str) -> tuple[str, ...]:
        """Return the names of the hooks that a running plugin implements."""
        return next((each.hooks.names for each in self._running if each.key == key), ())

    def implementers(self, hook: str) -> tuple[str, ...]:
        """Return the keys of the running plugins that implement a hook, in the order in which they are asked.

        Those around calls are asked of a plugin only while it has them switched on.
        """
        silent = {each.key for each in self._running if not each.site.call_hooks.on}
        around = hook in HOOKS and HOOKS[hook].asked == "call"
        return tuple(
            item.plugin_name for item in self._implementing(hook) if not (around and item.plugin_name in silent)
        )

    def call_hooks(
        self, runner: CallRunner, watched: Callable[[str, str, str], object] = lambda source, tool_name, rule: None
    ) -> CallHooks | None:
        """Return the hooks around calls of the running plugins; None if there are none.

        `watched` counts the calls that a watched rule would have refused, as `CallHook.watched`.
        """
        running = {each.key: each for each in self._running if each.site.call_hooks.on}
        before, change, after = (
            tuple(
                _call_hook(name, item, running[item.plugin_name], watched)
                for item in self._implementing(name)
                if item.plugin_name in running
            )
            for name in ("before_call", "change_result", "after_call")
        )
        tracers = tuple(
            OwnedTracer(tracer, each.owner, FailureCounts()) for each in self._running for tracer in each.tracers
        )
        if not (before or change or after or tracers):
            return None
        return CallHooks(
            runner=runner, before=before, change=change, after=after, tracers=tracers, monitors=self._monitors
        )

    def followers(self, hook: str = "provider_changed") -> list[ChangeFollower]:
        """Return the implementations of a hook that takes one change, in the order in which they are asked."""
        return [ChangeFollower(plugin.site, ask, plugin.owner) for ask, plugin in self._find_asking(hook)]

    def rankers(self) -> list[ToolRanker]:
        """Return the implementations of `rank_tools`, in the order in which they are asked."""
        return [ToolRanker(ask, plugin.owner) for ask, plugin in self._find_asking("rank_tools")]

    def ask_describers(self) -> None:
        """Let `descriptions` ask the implementations of `describe_tools` of the plugins that run now."""
        asked = self._find_asking("describe_tools")
        self.descriptions.use([ToolDescriber(ask, plugin.owner, plugin.key) for ask, plugin in asked])

    def console_pages(self) -> list[ConsolePage]:
        """Return the pages that running plugins offer to the console, with whole paths; one that fails has none."""
        pages: dict[str, ConsolePage] = {}
        for found, plugin in self._ask_each("console_pages", ConsolePage, "the console does not show its pages"):
            for page in found:
                # The first of an id wins, as with tools.
                pages.setdefault(page.id, replace(page, path=plugin.mount + page.path))
        return list(pages.values())

    def mcp_extensions(self) -> list[McpExtension]:
        """Return the extensions of the protocol that running plugins have, one of each name."""
        named: dict[str, _SameName] = {}
        for found, plugin in self._ask_each("mcp_extensions", McpExtension, "it has no extensions"):
            for extension in found:
                named.setdefault(extension.name, _SameName(plugin.owner, [])).extensions.append(extension)
        return [each.join() for each in named.values()]

    def toolset_sources(self) -> dict[str, OpenToolsetSource]:
        """Return the functions of running plugins that open toolset sources, by kind; one that fails has none."""
        kinds: dict[str, OpenToolsetSource] = {}
        for ask, plugin in self._find_asking("toolset_sources"):
            try:
                # In this order, so that a kind of an earlier plugin is not replaced.
                kinds = {**cast("Mapping[str, OpenToolsetSource]", ask()), **kinds}
            except BaseException as error:  # noqa: BLE001  code of a plugin
                log_crash("toolset_sources()", error, plugin.owner, then="its toolsets have no tools")
        return kinds

    def _ask_each(self, hook: str, kind: type[T], then: str) -> Iterator[tuple[list[T], RunningPlugin]]:
        """Yield the objects of this kind that each plugin returns; all of one that fails are left out, and `then`."""
        for ask, plugin in self._find_asking(hook):
            try:
                found = list(cast("Iterable[T]", ask()))
                for each in found:
                    # Not `isinstance`: the class of a plugin may say anything of itself.
                    if kind not in type(each).__mro__:
                        raise TypeError(f"{type(each).__name__} is no {kind.__name__}")
            except BaseException as error:  # noqa: BLE001  code of a plugin
                log_crash(f"{hook}()", error, plugin.owner, then=then)
            else:
                yield found, plugin

    def _implementing(self, hook: str) -> Iterator[HookImpl]:
        caller: pluggy.HookCaller = getattr(self.hook, hook)
        # pluggy keeps the one that is called first at the end.
        return reversed(caller.get_hookimpls())

    def _find_asking(self, hook: str) -> Iterator[tuple[Callable[..., Any], RunningPlugin]]:
        """Yield how each implementation of a hook is asked, and its plugin, in the order in which they are asked."""
        running = {each.key: each for each in self._running}
        for item in self._implementing(hook):
            plugin = running[item.plugin_name]
            yield asking(item.function, hook, plugin.site), plugin

    @contextmanager
    def _admitting(self, options: Mapping[str, HookimplOpts]) -> Generator[None]:
        self._admitted = options
        try:
            yield
        finally:
            self._admitted = None


class _SameName(NamedTuple):
    """The extensions of one name, in the order of their plugins; `owner` is that of the first."""

    owner: CodeOwner
    extensions: list[McpExtension]

    def join(self) -> McpExtension:
        """Return the first with those of its class. One of another class is another plugin's, and does not count."""
        first, *others = self.extensions
        alike = [each for each in others if type(each) is type(first)]
        try:
            return first.join(alike) if alike else first
        except BaseException as error:  # noqa: BLE001  code of a plugin
            log_crash("join()", error, self.owner, then="its other entries have no extensions")
            return first


def _find_specification(plugins: pluggy.PluginManager, name: str) -> object:
    """Return the function that specifies a hook; None if no plugin has specified it."""
    caller: pluggy.HookCaller | None = getattr(plugins.hook, name, None)
    return None if caller is None or caller.spec is None else caller.spec.function


def specifications(plugins: pluggy.PluginManager) -> dict[str, Sequence[str]]:
    """Return the hooks that plugins or the host's code have specified, with their arguments."""
    callers: dict[str, pluggy.HookCaller] = vars(plugins.hook)
    return {name: each.spec.argnames for name, each in callers.items() if name not in HOOKS and each.spec is not None}


def _call_hook(
    name: str, item: HookImpl, running: RunningPlugin, watched: Callable[[str, str, str], object]
) -> CallHook:
    taken = taken_arguments(item.function)
    but_first = taken == HOOKS[name].given_arguments[1:]
    return CallHook(
        name=name,
        implementation=item,
        ask=item.function if but_first else asking(item.function, name, running.site),
        skips=int(but_first),
        owner=running.owner,
        is_async=inspect.iscoroutinefunction(inspect.unwrap(item.function)),
        wraps=item.wrapper,
        takes_call="call" in taken,
        on_failure=running.on_failure,
        failures=FailureCounts(),
        watched=watched,
    )
