"""From an entry point or a file to what makes providers of its type; whatever goes wrong becomes a `ProviderError`.

A file is what the configuration names: `type: ./notes.py` or `type: ./notes.py:Notes`. Each content of it is a module
of its own, compiled from the text that was read: the import system would give the old code for a change within the
same second.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from itertools import compress, count
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from pydantic import BaseModel

from toolplug.crashes import find_blamed, outline_error
from toolplug.errors import InvalidDefinition, ProviderError
from toolplug.packages.entry_points import GROUP, InstalledProvider
from toolplug.providers.authoring import check_declared, declared_routes, declared_scopes, is_tool
from toolplug.providers.entry import ProviderState
from toolplug.providers.plugins.implementations import NO_HOOKS, TITLE, PluginHooks, asking, module_title
from toolplug.providers.plugins.shapes import (
    delegating_provider,
    function_provider,
    hooks_of,
    is_single,
    module_provider,
    plugin_of,
    provider_classes,
)
from toolplug.providers.provider import FunctionProvider, build_provider, config_model
from toolplug.runtime.threads import begun_in_own_thread
from toolplug.runtime.timers import WorkTime
from toolplug.signatures.annotations import unread_signature

_LOG = logging.getLogger("toolplug.providers")
_ADAPTERS = {"fastmcp": "fastmcp", "langchain_core": "langchain", "llama_index": "llama_index"}
"""Packages of frameworks → the types of entries that take their objects."""
# Large packages take several seconds on a slow disk.
IMPORT_S = 10.0
MAX_DATA = 8 * 1024 * 1024
"""Characters of the data files of an entry in a lock: 50,000 files with paths of a hundred characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderType:
    """What an entry point names, imported and checked.

    `config`: the model of its settings. Without one a class takes no settings, and a function (`open_settings`) gets
    the mapping as it is. `build(key, config)` makes an instance; it raises what the author's code raises, and
    `ProviderError` for a function that gives something else than a provider.

    `tools` are the names of the `@tool` methods, `routes` method and path of the `@route` methods, `scopes` those that
    these ask for, None for a function. What else there may be only a start can tell: `unchecked` names it, `tools` or
    `routes`. `names_sign_in`: it may say where callers sign in. `plugin` is the class, function, module or object, and
    `hooks` are what it implements. `data_of(config, folder)` returns the texts of the data files that its lock entry
    has, by their paths; it raises `ProviderError`.
    """

    installed: InstalledProvider
    config: type[BaseModel] | None
    open_settings: bool
    build: Callable[[str, object], FunctionProvider]
    plugin: object
    data_of: Callable[[object, Path], Mapping[str, str]] = lambda config, folder: {}
    hooks: PluginHooks = NO_HOOKS
    tools: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    scopes: frozenset[str] | None = None
    unchecked: tuple[str, ...] = ("tools", "routes")
    names_sign_in: bool = True

    def implementing(self, hook: str) -> list[Callable[..., object]]:
        """Return the functions of a hook that is asked before there is an instance; each takes all its arguments."""
        found = [getattr(self.plugin, item.attribute) for item in self.hooks.implementations if item.hook == hook]
        return [asking(function, hook) for function in found]

    @property
    def single(self) -> object:
        """The module or object, which can have one entry only; None for a class, a function, or a file."""
        return self.plugin if is_single(self.plugin) and self.installed.file is None else None


def load(found: InstalledProvider, *, within_s: float = IMPORT_S) -> ProviderType:
    """Import the entry point and check what it names. Blocks until the import has ended, or is given up.

    It is given up after `within_s` seconds in which it did nothing, or after it has worked for so long: on a busy
    machine that takes longer by the clock. It goes on in its daemon thread, and its outcome is dropped. Raises
    `ProviderError` naming distribution and version, in state `import-failed` or `incompatible`.
    """
    if found.excluded_by:
        raise _incompatible(found, f"it requires {found.excluded_by}", "install a version of it for this toolplug")
    target = _import(found, within_s)
    try:
        kind = _provider_class(found, target)
        config = config_model(target if kind is None else plugin_of(kind))
        if kind is not None:
            plugin, hooks, tools = _check_class(found, kind)
            overridden = (kind.tools is not FunctionProvider.tools, kind.routes is not FunctionProvider.routes)
            return ProviderType(
                installed=found,
                config=config,
                open_settings=False,
                build=_building(found, target, kind),
                plugin=target if isinstance(target, FunctionProvider) else plugin,
                data_of=partial(_list_data, found, kind),
                hooks=hooks,
                tools=tools,
                routes=tuple(declared_routes(kind)),
                scopes=declared_scopes(kind),
                unchecked=tuple(compress(("tools", "routes"), overridden)),
                names_sign_in=kind.sign_in_endpoints is not FunctionProvider.sign_in_endpoints,
            )
    except InvalidDefinition as error:
        raise _make_error(found, str(error)) from error
    except ProviderError:
        raise
    # The order matters: the two above have texts of their own.
    except Exception as error:  # types and values of the author are code, too: they are compared, hashed and shown
        raised = f"reading {found.entry_point.value}" if found.file is None else "reading it"
        said = f"{raised} raised {_describe_error(error, found.module)}"
        raise _make_error(found, said, f"{raised} raised {outline_error(error, found.module)}") from error
    if not callable(target) or not _takes_two(target):
        value = found.entry_point.value
        raise _make_error(
            found,
            f"{value} is no plugin: write a FunctionProvider subclass, a function or class of (key, config), or a "
            "module or an object with @hookimpl functions",
        )
    hooks = _checked_hooks(found, target) if isinstance(target, type) else NO_HOOKS
    build = partial(_make, found, target)
    return ProviderType(
        installed=found, config=config, open_settings=config is None, build=build, plugin=target, hooks=hooks
    )


def _provider_class(found: InstalledProvider, target: object) -> type[FunctionProvider] | None:
    """Return the provider class of what was imported; None for a factory. Raises `ProviderError`."""
    if isinstance(target, type):
        return target if issubclass(target, FunctionProvider) else None
    if isinstance(target, FunctionProvider):
        return type(target)
    if isinstance(target, FunctionType):
        return function_provider(target) if is_tool(target) else None
    if isinstance(target, ModuleType):
        kind = module_provider(target)
        if kind is None:
            what = f"{module_title(target)} has no function with @tool, @route or @hookimpl and no FunctionProvider"
            raise _incompatible(found, what, _advise_on(target))
        if plugin_of(kind) is target:
            _warn_of_unused(found, provider_classes(target))
        return kind
    return delegating_provider(target)


def _advise_on(module: ModuleType) -> str:
    """Return what to do about a module that is no provider: it may have the objects of a framework."""
    for name, value in vars(module).items():
        package = type(value).__module__.partition(".")[0]
        if package in _ADAPTERS:
            kind = _ADAPTERS[package]
            return f"add one, or serve {name!r} by an entry with type: {kind}, of toolplug-{kind.replace('_', '-')}"
    return "add one"


def _warn_of_unused(found: InstalledProvider, classes: Iterable[type[FunctionProvider]]) -> None:
    """Warn of the provider classes of a module whose functions are the provider."""
    for kind in classes:
        whose = f"{found.entry_point.value}:{kind.__name__}" if found.file is None else f"{found.type}:{kind.__name__}"
        text = "%s: its functions are the provider, which leaves out the class %s; an entry of its own serves it: %s"
        _LOG.warning(text, _named_package(found), kind.__name__, whose)


def _building(
    found: InstalledProvider, target: object, kind: type[FunctionProvider]
) -> Callable[[str, object], FunctionProvider]:
    """Return the function of (key, config) that makes a provider.

    A module of a file is executed anew for each provider but the first, so that each has globals of its own.
    """
    if isinstance(target, FunctionProvider):
        return partial(_configure, target)
    if found.file is None or not isinstance(target, ModuleType) or plugin_of(kind) is not target:
        return partial(build_provider, kind)

    def build(key: str, config: object) -> FunctionProvider:
        # The module that was executed to find out what it has serves the first provider; each further one gets its own.
        unused = vars(target).pop(_UNUSED, False)
        own = kind if unused else delegating_provider(file_module(found, fresh=True))
        return build_provider(own or kind, key, config)

    return build


def _list_data(
    found: InstalledProvider, kind: type[FunctionProvider], config: object, folder: Path
) -> Mapping[str, str]:
    """Return the data files of a class with these settings. Raises `ProviderError`."""
    try:
        given: Any = kind.locked_files(config, folder)
    except InvalidDefinition as error:
        raise _incompatible(found, str(error), "correct the files, or the setting that names them") from error
    except Exception as error:  # the author's code
        said = f"locked_files() raised {_describe_error(error, found.module)}"
        raise _make_error(found, said, f"locked_files() raised {outline_error(error, found.module)}") from error
    if not isinstance(given, Mapping):
        raise _incompatible(found, f"locked_files() returned {type(given).__name__}, not a mapping", "fix the package")
    texts = {str(path): str(text) for path, text in given.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if sum(len(path) + len(text) for path, text in texts.items()) > MAX_DATA:
        raise _incompatible(found, f"locked_files() returned over {MAX_DATA} characters", "lock fewer files")
    return texts


def _configure(provider: FunctionProvider, key: str, config: object) -> FunctionProvider:
    """Return a provider that its package has made, with its key and settings."""
    provider.key = key
    if config is not None:
        provider.config = config
    return provider


def _import(found: InstalledProvider, within_s: float) -> object:
    # A thread that can be given up: an import cannot be interrupted.
    outcome = begun_in_own_thread(partial(_import_named, found), name=f"toolplug-import-{found.type}")
    work = WorkTime(within_s)
    while True:
        try:
            return outcome.result(within_s)
        except TimeoutError:
            if work.goes_on():
                continue
        raise _make_error(found, f"importing {found.entry_point.module} has not ended after {within_s:g} s")


def _import_named(found: InstalledProvider) -> object:
    point = found.entry_point
    try:
        module = import_module(point.module) if found.file is None else file_module(found)
    except BaseException as error:
        raised = f"importing {point.module} raised" if found.file is None else "it raised"
        raise _make_error(
            found,
            f"{raised} {_describe_error(error, found.module)}",
            f"{raised} {outline_error(error, found.module)}",
            _missing_module(error),
        ) from error
    try:
        # `module:Outer.Inner` is a path of attributes.
        return reduce(getattr, (part for part in (point.attr or "").split(".") if part), module)
    except BaseException as error:
        known = [name for name, value in vars(module).items() if _is_own_provider(value, module.__name__)]
        there = f"; its providers are {', '.join(known)}" if known else ""
        if found.file is not None:
            raise _make_error(found, f"{found.file.name} has no {point.attr!r}{there}") from error
        lacks = f"{point.module} has no {point.attr!r}"
        raise _make_error(
            found, f"{lacks} ({_describe_error(error, found.module)}){there}", f"{lacks}{there}"
        ) from error


def _is_own_provider(value: object, module: str) -> bool:
    return isinstance(value, type) and issubclass(value, FunctionProvider) and value.__module__ == module


def _check_class(found: InstalledProvider, kind: type[FunctionProvider]) -> tuple[object, PluginHooks, tuple[str, ...]]:
    """Return the plugin of a provider class, its hooks and the names of its `@tool` methods, all valid."""
    plugin = plugin_of(kind)
    hooks = _checked_hooks(found, plugin)
    return plugin, hooks, tuple(definition.name for definition in check_declared(kind))


def _checked_hooks(found: InstalledProvider, plugin: object) -> PluginHooks:
    """Return the hooks of a plugin. Raises `ProviderError` for what is wrong, whatever hooks other plugins specify."""
    hooks = hooks_of(plugin)
    if hooks.own_problems:
        raise wrong_hooks(found, hooks.problems)
    return hooks


def wrong_hooks(found: InstalledProvider, problems: Iterable[str]) -> ProviderError:
    """Return the error of a plugin with these problems in its hooks."""
    whom = "change the file" if found.file is not None else f"ask the author of {found.distribution} to change it"
    return _incompatible(found, "; ".join(problems), whom)


def _make(
    found: InstalledProvider, make: Callable[[str, object], object], key: str, config: object
) -> FunctionProvider:
    """Return the provider that a factory makes, or one that delegates to the object that it makes."""
    given = make(key, config)
    provider = given if isinstance(given, FunctionProvider) else None
    try:
        kind = delegating_provider(given) if provider is None else type(provider)
        if kind is None:
            value, what = found.entry_point.value, type(given).__qualname__
            raise _make_error(found, f"{value} gave a {what}, which is no FunctionProvider and has no hook or tool")
        _check_class(found, kind)
    except InvalidDefinition as error:
        raise _make_error(found, str(error)) from error
    if provider is None:
        provider = build_provider(kind, key, config)
    provider.key = key
    return provider


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        # Bound, not counted: defaults, `*args` and keyword-only parameters are all valid shapes.
        unread_signature(function).bind("key", None)
    except (TypeError, ValueError):
        return False
    return True


def _describe_error(error: BaseException, package: str) -> str:
    """The error on one line, with the line of the package that its author can change."""
    if isinstance(error, SyntaxError) and error.filename:
        text, place = error.msg, f" at {error.filename}:{error.lineno}"
    else:
        text, blame = str(error), find_blamed(error, package)
        place = f" at {blame.file}:{blame.line}" if blame is not None else ""
    text = " ".join(text.split())
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def _missing_module(error: BaseException) -> str:
    """Return the top-level module that an import did not find; empty for another error."""
    return (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""


def _named_package(found: InstalledProvider) -> str:
    return f"{found.package} ({found.type})" if found.file is None else found.type


def _make_error(found: InstalledProvider, what: str, summary: str = "", missing: str = "") -> ProviderError:
    """Return the error of a provider that cannot be loaded; `missing` is the module that is not installed, if any."""
    action = "fix the line" if found.editable else f"reinstall or update {found.distribution}"
    if missing:
        action = f"install the package that has {missing!r}" + (", or fix the line" if found.editable else "")
    # A file that is served by itself has no entry.
    fix = action if found.file is not None else f"{action}, or remove its entry"
    owner = _named_package(found)
    return ProviderError(
        f"{owner}: {what}",
        summary=f"{owner}: {summary or what}",
        state=ProviderState.IMPORT_FAILED,
        fix=fix,
    )


def _incompatible(found: InstalledProvider, what: str, fix: str) -> ProviderError:
    return ProviderError(f"{_named_package(found)}: {what}", state=ProviderState.INCOMPATIBLE, fix=fix)


MAX_BYTES = 4 * 1024 * 1024

_MODULES = "toolplug_file_"
_UNUSED = "__toolplug_unused__"
"""In the globals of a file's module: no provider has it yet."""
_TYPE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>[A-Za-z_]\w*))?")


def names_file(type_name: str) -> bool:
    """Return whether a provider type is a file: `./notes.py`, `/srv/notes.py:Notes`."""
    return _TYPE.fullmatch(type_name) is not None


def file_of(type_name: str) -> str:
    """Return the path of a provider type that is a file, which on Windows has a colon of its own."""
    found = _TYPE.fullmatch(type_name)
    return type_name if found is None else found["path"]


def provider_file(type_name: str, folder: Path) -> InstalledProvider:
    """Return the provider type of a file, with the file's content; relative paths are below `folder`.

    Raises `ProviderError` (`import-failed`) for a file that cannot be read.
    """
    named = _TYPE.fullmatch(type_name)
    if named is None:
        raise ValueError(f"{type_name!r} is no file")
    path = folder / named["path"]
    try:
        with path.open("rb") as stream:
            code = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _file_failed(
            type_name, f"cannot be read: {reason}", f"correct the path; it is below {os.path.normpath(folder)}"
        ) from None
    if len(code) > MAX_BYTES:
        raise _file_failed(type_name, f"is over {MAX_BYTES} bytes", "split it into a package")
    # The digest makes the name unique; the stem makes it readable in tracebacks.
    stem = re.sub(r"\W", "_", path.stem)
    module = f"{_MODULES}{stem}_{hashlib.sha256(code).hexdigest()[:12]}"
    return InstalledProvider(
        type=type_name,
        entry_point=EntryPoint(name=type_name, value=f"{module}:{named['name'] or ''}".rstrip(":"), group=GROUP),
        distribution=type_name,
        version="",
        editable=True,
        file=path,
        code=code,
    )


def file_module(found: InstalledProvider, *, fresh: bool = False) -> ModuleType:
    """Return the module of a file's content, executed, or a `fresh` one. Raises what the file's code raises."""
    name = found.entry_point.module
    if fresh:
        name = next(each for number in count(2) if (each := f"{name}_{number}") not in sys.modules)
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    module = ModuleType(name)
    module.__file__ = str(found.file)
    module.__spec__ = ModuleSpec(name, None, origin=str(found.file))
    vars(module).update({TITLE: found.file.stem if found.file is not None else name, _UNUSED: not fresh})
    compiled = compile(found.code, str(found.file), "exec", dont_inherit=True)
    # Before it is executed, as the import system does it: dataclasses and pydantic look up their own module.
    sys.modules[name] = module
    try:
        exec(compiled, vars(module))
    except BaseException:
        # A module that failed half-way must not be found by the next attempt.
        del sys.modules[name]
        raise
    return module


def file_of_module(name: str) -> Path | None:
    """Return the path of the file whose content the module of this name is, None for any other module."""
    module = sys.modules.get(name) if name.startswith(_MODULES) else None
    return None if module is None or module.__file__ is None else Path(module.__file__).resolve()


def _file_failed(type_name: str, what: str, fix: str) -> ProviderError:
    return ProviderError(f"{type_name}: {what}", state=ProviderState.IMPORT_FAILED, fix=fix)
