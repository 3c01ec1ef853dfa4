"""The shapes of plugins: every class, instance, function, module or object is run as a `FunctionProvider`.

Behind a module or an object with hooks, tools or routes is a provider that delegates to it.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, cast

from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import declared_scopes, is_tool
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.plugins.implementations import HOOKS, PluginHooks, asking, marks_of, module_title, read_hooks
from toolplug.providers.provider import FunctionProvider, build_provider, config_model, remember_start, site_of
from toolplug.signatures.annotations import class_function

ProviderLike = FunctionProvider | type[FunctionProvider] | ModuleType | Callable[..., object] | object
"""An instance, a class whose `Config` has a default for everything, a function with `@tool`, or a plugin of hooks."""

_PLUGIN = "_toolplug_plugin"
_KEY = re.compile(r"[a-z][a-z0-9_]{0,63}")
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class CodedProvider(NamedTuple):
    """A provider from code: its class, and a function that creates it. `single` is its plugin if there is only one."""

    kind: type[FunctionProvider]
    build: Callable[[], FunctionProvider]
    single: object = None

    @property
    def scopes(self) -> frozenset[str] | None:
        """The scopes that its routes ask for by name, None if only a start can tell, as of what `routes()` returns."""
        return declared_scopes(self.kind) if self.kind.routes is FunctionProvider.routes else None


def is_single(plugin: object) -> bool:
    """Return whether a plugin exists once, and so has one entry: a module or an object, not a class or function."""
    # A class or function makes something new for each entry; a module or an object is there once.
    return not isinstance(plugin, type | FunctionType)


def plugin_of(provider: FunctionProvider | type[FunctionProvider]) -> object:
    """Return what is registered for a provider: the module or object behind it, else the provider or class itself."""
    return getattr(provider, _PLUGIN, provider)


def hooks_of(plugin: object) -> PluginHooks:
    """Return the hooks of a plugin of any shape, or of the class that its instances have."""
    kind = plugin if isinstance(plugin, type) else type(plugin)
    return read_hooks(plugin, FunctionProvider if issubclass(kind, FunctionProvider) else None)


def with_keys(providers: Sequence[ProviderLike]) -> Iterator[tuple[str, ProviderLike]]:
    """Return each with its key: the name of its class or function in snake case, numbered if it is taken."""
    taken: set[str] = set()
    for given in providers:
        named = given if isinstance(given, type | FunctionType) else type(given)
        title = module_title(given).rpartition(".")[2] if isinstance(given, ModuleType) else named.__name__
        name = _WORD_BREAK.sub("_", title).lower().strip("_")
        numbered = (f"{name}_{number}" for number in count(2))
        key = next(each for each in chain((name,), numbered) if each not in taken)
        taken.add(key)
        yield key, given


def check_key(key: object) -> None:
    """Raise `InvalidDefinition` unless this can be the key of a provider, which is a label of metrics."""
    if not (isinstance(key, str) and _KEY.fullmatch(key)):
        raise InvalidDefinition(
            f"{key!r} is no key of a provider; write a lower-case letter, then up to 63 of a-z 0-9 _, as web_search"
        )


def provider_of(key: str, given: object) -> CodedProvider:
    """Return the provider of a plugin from code. Raises `InvalidDefinition`."""
    if isinstance(given, FunctionProvider):
        # A started instance may be given: its key is that of the mapping, whatever it was before.
        given.key = key
        return CodedProvider(type(given), lambda: given, given)
    if isinstance(given, type) and issubclass(given, FunctionProvider):
        return CodedProvider(given, partial(build_provider, given, key, None))
    if isinstance(given, FunctionType) and is_tool(given):
        kind = function_provider(given)
        return CodedProvider(kind, partial(build_provider, kind, key, None))
    kind = None if isinstance(given, type | FunctionType) else delegating_provider(given)
    if kind is None:
        raise InvalidDefinition(
            f"{key!r}: {_kind_of(given)} is no provider; give a FunctionProvider, its class, a function with @tool, or "
            "a module or an object with @hookimpl functions"
        )
    return CodedProvider(kind, partial(build_provider, kind, key, None), given)


def desired_providers(providers: Mapping[str, ProviderLike] | Sequence[ProviderLike]) -> list[DesiredProvider]:
    """Return providers from code as entries; a sequence is keyed by the names of classes and functions.

    Raises `InvalidDefinition` for anything that is not a provider, and for one instance under two keys.
    """
    _check_several(providers)
    named = providers.items() if isinstance(providers, Mapping) else with_keys(providers)
    wanted: list[DesiredProvider] = []
    keys: dict[int, str] = {}
    for key, given in named:
        first = keys.setdefault(id(given), key)
        if first != key and is_single(given):
            what = (
                f"module {given.__name__}"
                if isinstance(given, ModuleType)
                else f"instance of {type(given).__qualname__}"
            )
            raise InvalidDefinition(f"{first!r} and {key!r} are the same {what}; make one for each key")
        check_key(key)
        coded = provider_of(key, given)
        kind = coded.kind
        # code from `exec` and a function that another program made may have no module
        entry = ProviderEntry(key=key, type=kind.__name__, package=(kind.__module__ or "").partition(".")[0])
        wanted.append(DesiredProvider(entry, coded.build, single=coded.single, scopes=coded.scopes))
    return wanted


def _check_several(given: object) -> None:
    """Raise `InvalidDefinition` for a path, and for a provider in place of a list of providers."""
    if isinstance(given, str | os.PathLike):
        path = str(cast("object", given))
        message = f"{path!r} is no list of providers; for the providers of a file: FunctionRegistry.from_yaml({path!r})"
        raise InvalidDefinition(message)
    if not isinstance(given, Iterable):
        name: str = getattr(given, "__name__", f"{type(given).__name__}()")
        raise InvalidDefinition(f"{name} is one provider; give a list, [{name}], or a mapping of keys to providers")


def _kind_of(given: object) -> str:
    """Return what was given, in words: an object's own text may be its address."""
    if isinstance(given, type | FunctionType):
        return f"{'the class' if isinstance(given, type) else 'the function'} {given.__qualname__}"
    if isinstance(given, ModuleType):
        return f"the module {given.__name__}"
    return f"an instance of {type(given).__qualname__}"


def function_provider(function: FunctionType) -> type[FunctionProvider]:
    """Return a provider class with one tool, a function with `@tool`. Raises `InvalidDefinition`."""
    # `staticmethod`: the function has no `self`, and its module is where its annotations are looked up.
    namespace = {function.__name__: staticmethod(function), "__module__": function.__module__}
    return type(function.__name__, (FunctionProvider,), namespace)


def module_provider(module: ModuleType) -> type[FunctionProvider] | None:
    """Return the provider of a module: of its hooks, tools and routes, else its only provider class; None without one.

    Raises `InvalidDefinition` if it has several classes, and for a tool or route that is not valid.
    """
    delegating = delegating_provider(module)
    if delegating is not None:
        return delegating
    classes = provider_classes(module)
    if len(classes) > 1:
        names = ", ".join(kind.__name__ for kind in classes)
        raise InvalidDefinition(f"has several providers: {names}; name one: :{classes[0].__name__}")
    return classes[0] if classes else None


def provider_classes(module: ModuleType) -> list[type[FunctionProvider]]:
    """Return the provider classes that a module defines itself."""
    # Only those that the module itself defines: it imports `FunctionProvider`, and perhaps other providers.
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    return [value for value in own if isinstance(value, type) and issubclass(value, FunctionProvider)]


def delegating_provider(plugin: object) -> type[FunctionProvider] | None:
    """Return a provider class that delegates to a module or an object; None if that has no hook, tool or route.

    Raises `InvalidDefinition` for a tool or route that is not valid.
    """
    functions, hooks = dict(_find_marked(plugin)), hooks_of(plugin)
    if not (functions or hooks.implementations or hooks.problems or hooks.foreign):
        return None
    title = module_title(plugin) if isinstance(plugin, ModuleType) else type(plugin).__name__
    namespace: dict[str, Any] = {name: staticmethod(function) for name, function in functions.items()}
    module = plugin.__name__ if isinstance(plugin, ModuleType) else type(plugin).__module__
    namespace |= {"__module__": module, "__doc__": plugin.__doc__, _PLUGIN: plugin}
    if hasattr(plugin, "Config"):
        namespace["Config"] = config_model(plugin)
    kind = type(title.rpartition(".")[2], (FunctionProvider,), namespace)
    for item in hooks.implementations:
        if HOOKS[item.hook].asked == "provider":
            setattr(kind, item.hook, _delegate(item.hook, getattr(plugin, item.attribute)))
    # `__init_subclass__` has run before the hooks of the plugin were set.
    remember_start(kind)
    return kind


def _find_marked(plugin: object) -> Iterable[tuple[str, Callable[..., object]]]:
    """Yield the functions with `@tool` or `@route` that a module defines, or that an object has as methods."""
    if isinstance(plugin, ModuleType):
        # A list, since reading an annotation may import something into the module.
        for value in list(vars(plugin).values()):
            if isinstance(value, FunctionType) and value.__module__ == plugin.__name__ and marks_of(value):
                yield value.__name__, value
        return
    for name in dict.fromkeys(name for kind in reversed(type(plugin).__mro__) for name in vars(kind)):
        own = class_function(inspect.getattr_static(type(plugin), name))
        if own is not None and marks_of(own.function):
            yield name, getattr(plugin, name)


def _delegate(name: str, function: Callable[..., Any]) -> Callable[..., object]:
    """Return a method that asks a hook of the plugin."""

    def hook(self: object, *given: object) -> Any:
        return asking(function, name, site_of(self))(*given)

    async def awaited_hook(self: object, *given: object) -> object:
        return await hook(self, *given)

    return awaited_hook if HOOKS[name].waits else hook
