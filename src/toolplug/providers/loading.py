"""From an installed entry point to what makes providers of its type; whatever goes wrong becomes a `ProviderError`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from itertools import compress

from pydantic import BaseModel

from toolplug.crashes import blamed, outlined
from toolplug.errors import InvalidDefinition, ProviderError
from toolplug.providers.authoring import check_declared, declared_routes
from toolplug.providers.entry import ProviderState
from toolplug.providers.entry_points import InstalledProvider
from toolplug.providers.hooks import hook_problems
from toolplug.providers.provider import FunctionProvider, built, config_model
from toolplug.runtime.threads import begun_in_own_thread
from toolplug.signatures.annotations import unread_signature

IMPORT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderType:
    """What an entry point names, imported and checked.

    `config`: the model of its settings. Without one a class takes no settings, and a function (`open_settings`) gets
    the mapping as it is. `build(key, config)` makes an instance; it raises what the author's code raises, and
    `ProviderError` for a function that gives something else than a provider.

    `tools` are the names of the `@tool` methods, `routes` method and path of the `@route` methods. What else there may
    be only a start can tell: `unchecked` names it, `tools` or `routes`.
    """

    installed: InstalledProvider
    config: type[BaseModel] | None
    open_settings: bool
    build: Callable[[str, object], FunctionProvider]
    tools: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    unchecked: tuple[str, ...] = ("tools", "routes")


def load(found: InstalledProvider, *, within_s: float = IMPORT_S) -> ProviderType:
    """Import the entry point and check what it names. Blocks, at most about `within_s` seconds.

    An import that has not ended by then goes on in its daemon thread, and its outcome is dropped. Raises
    `ProviderError` naming distribution and version, in state `import-failed` or `incompatible`.
    """
    if found.excluded_by:
        raise _incompatible(found, f"it requires {found.excluded_by}", "install a version of it for this toolplug")
    target = _imported(found, within_s)
    try:
        config = config_model(target)
        if isinstance(target, type) and issubclass(target, FunctionProvider):
            tools = _checked_tools(found, target)
            overridden = (target.tools is not FunctionProvider.tools, target.routes is not FunctionProvider.routes)
            return ProviderType(
                installed=found,
                config=config,
                open_settings=False,
                build=partial(built, target),
                tools=tools,
                routes=tuple(declared_routes(target)),
                unchecked=tuple(compress(("tools", "routes"), overridden)),
            )
    except InvalidDefinition as error:
        raise _failed(found, str(error)) from error
    if isinstance(target, type) or not callable(target) or not _takes_two(target):
        value = found.entry_point.value
        raise _failed(found, f"{value} is neither a FunctionProvider subclass nor a function of (key, config)")
    build = partial(_made, found, target)
    return ProviderType(installed=found, config=config, open_settings=config is None, build=build)


def _imported(found: InstalledProvider, within_s: float) -> object:
    outcome = begun_in_own_thread(partial(_named, found), name=f"toolplug-import-{found.type}")
    try:
        return outcome.result(within_s)
    except TimeoutError:
        module = found.entry_point.module
        raise _failed(found, f"importing {module} has not ended after {within_s:g} s") from None


def _named(found: InstalledProvider) -> object:
    point = found.entry_point
    try:
        module = import_module(point.module)
    except BaseException as error:
        raised = f"importing {point.module} raised"
        raise _failed(
            found, f"{raised} {_said(error, found.module)}", f"{raised} {outlined(error, found.module)}"
        ) from error
    try:
        return reduce(getattr, (part for part in point.attr.split(".") if part), module)
    except BaseException as error:
        known = [name for name, value in vars(module).items() if _is_own_provider(value, module.__name__)]
        there = f"; its providers are {', '.join(known)}" if known else ""
        lacks = f"{point.module} has no {point.attr!r}"
        raise _failed(found, f"{lacks} ({_said(error, found.module)}){there}", f"{lacks}{there}") from error


def _is_own_provider(value: object, module: str) -> bool:
    return isinstance(value, type) and issubclass(value, FunctionProvider) and value.__module__ == module


def _checked_tools(found: InstalledProvider, kind: type[FunctionProvider]) -> tuple[str, ...]:
    """The names of the class's `@tool` methods, its hooks and its annotations being valid."""
    problems = hook_problems(kind)
    if problems:
        raise _incompatible(found, "; ".join(problems), f"ask the author of {found.distribution} to change the method")
    return tuple(definition.name for definition in check_declared(kind))


def _made(
    found: InstalledProvider, make: Callable[[str, object], object], key: str, config: object
) -> FunctionProvider:
    provider = make(key, config)
    if not isinstance(provider, FunctionProvider):
        value, given = found.entry_point.value, type(provider).__qualname__
        raise _failed(found, f"{value} gave a {given}, which is no FunctionProvider")
    try:
        _checked_tools(found, type(provider))
    except InvalidDefinition as error:
        raise _failed(found, str(error)) from error
    provider.key = key
    return provider


def _takes_two(function: Callable[..., object]) -> bool:
    try:
        unread_signature(function).bind("key", None)
    except (TypeError, ValueError):
        return False
    return True


def _said(error: BaseException, package: str) -> str:
    """The error on one line, with the line of the package that its author can change."""
    if isinstance(error, SyntaxError) and error.filename:
        text, place = error.msg, f" at {error.filename}:{error.lineno}"
    else:
        text, blame = str(error), blamed(error, package)
        place = f" at {blame.file}:{blame.line}" if blame is not None else ""
    text = " ".join(text.split())
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def _failed(found: InstalledProvider, what: str, summary: str = "") -> ProviderError:
    action = "fix the line" if found.editable else f"reinstall or update {found.distribution}"
    return ProviderError(
        f"{found.package} ({found.type}): {what}",
        summary=f"{found.package} ({found.type}): {summary or what}",
        state=ProviderState.IMPORT_FAILED,
        fix=f"{action}, or remove its entry",
    )


def _incompatible(found: InstalledProvider, what: str, fix: str) -> ProviderError:
    return ProviderError(f"{found.package} ({found.type}): {what}", state=ProviderState.INCOMPATIBLE, fix=fix)
