"""What a provider may implement, as pluggy hookspecs, and the check of a class against them.

A tool never runs through a hook: a hook is one to many and a call is one to one. What pluggy could do with an
implementation and the registry cannot (wrappers, other names) is refused here, never ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, Protocol

import pluggy

from toolplug import library_types
from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition
from toolplug.config.nearest import name_hint
from toolplug.providers.offering.definitions import Prompt, Resource
from toolplug.providers.site import ProviderContext
from toolplug.signatures.annotations import ClassFunction, class_function, unread_signature

PROJECT = "toolplug"

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)


class HookSpecs(Protocol):
    """Every hook. `FunctionProvider` has a default for each but the two that are called around every tool call."""

    @hookspec
    def name(self) -> str:
        """Return the provider's name: its key in the configuration."""
        ...

    @hookspec
    def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools, in listing order; called once, after `start`."""
        ...

    @hookspec
    def can_execute(self, name: str) -> bool:
        """Return whether the provider has a tool of this name; a listed tool that is refused here is not offered."""
        ...

    @hookspec
    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Run one call, whose arguments are valid by the tool's schema."""
        ...

    @hookspec
    def routes(self) -> Sequence[library_types.Route]:
        """Return HTTP routes besides those of `@route`; the host requires authentication with scope `tools:call`."""
        ...

    @hookspec
    def collectors(self) -> Sequence[library_types.Collector]:
        """Return the provider's own metrics; called once, after `start`. They are scraped while it is active."""
        ...

    @hookspec
    def prompts(self) -> Sequence[Prompt]:
        """Return the prompts for MCP clients, in listing order; called once, after `start`."""
        ...

    @hookspec
    def resources(self) -> Sequence[Resource]:
        """Return the resources and resource templates for MCP clients, in order; called once, after `start`."""
        ...

    @hookspec
    async def start(self, site: ProviderContext) -> None:
        """Open what the provider needs, such as connections or files; called once, first after the constructor."""
        ...

    @hookspec
    async def aclose(self) -> None:
        """Close what was opened; called once, also after a `start` that failed."""
        ...

    @hookspec
    async def before_call(self, call: ToolCall, context: CallContext) -> str | None:
        """Host-wide, before each call of any provider's tool; a text refuses it. May be a plain `def`."""
        ...

    @hookspec
    async def after_call(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        """Host-wide, after each call of any provider's tool, with its result. May be a plain `def`."""
        ...


class _Hook(NamedTuple):
    """How a hook is called. `waits`: it must be `async def`; None: it may be either.

    `host_wide`: it is asked around the calls of every provider, with its arguments by name, and has no default.
    """

    arguments: tuple[str, ...] = ()
    host_wide: bool = False
    waits: bool | None = False

    def written(self, name: str) -> str:
        """The first line of a valid implementation."""
        return f"{'async ' if self.waits else ''}def {name}({', '.join(('self', *self.arguments))})"


HOOKS: Mapping[str, _Hook] = {
    "name": _Hook(),
    "tools": _Hook(),
    "can_execute": _Hook(("name",)),
    "execute": _Hook(("call", "context"), waits=True),
    "routes": _Hook(),
    "collectors": _Hook(),
    "prompts": _Hook(),
    "resources": _Hook(),
    "start": _Hook(("site",), waits=True),
    "aclose": _Hook(waits=True),
    "before_call": _Hook(("call", "context"), host_wide=True, waits=None),
    "after_call": _Hook(("call", "context", "result"), host_wide=True, waits=None),
}

MARKS = "__toolplug__"
"""The attribute of a function that holds what `@tool` and `@route` leave."""

_REFUSED_OPTIONS = ("wrapper", "hookwrapper", "specname")
_ORDER_OPTIONS = ("tryfirst", "trylast")
_ALIKE = 0.8
_ALIKE_WITHOUT_ARGUMENTS = 0.88
"""Without parameters a name has to be nearer before it counts as a misspelt hook: `tool` does, `collect` does not."""


def mark_hooks(kind: type) -> None:
    """Mark the class's own hooks as implementations, so that authors need not."""
    for name in HOOKS:
        own = class_function(inspect.getattr_static(kind, name, None))
        if own is not None and _options(own) is None:
            hookimpl(own.function)


def hook_problems(kind: type) -> tuple[str, ...]:
    """What is wrong with the class's hooks, each with the method and the fix; empty when nothing is."""
    problems = [problem for name, hook in HOOKS.items() if (problem := _problem(kind, name, hook))]
    return (*problems, *_misnamed(kind))


def _options(own: ClassFunction) -> Mapping[str, object] | None:
    """What its author wrote in `@hookimpl(…)`; None for a function without it."""
    return getattr(own.function, f"{PROJECT}_impl", None)


def _problem(kind: type, name: str, hook: _Hook) -> str | None:
    found: object = inspect.getattr_static(kind, name, None)
    if found is None:
        return None
    place, fix = f"{kind.__qualname__}.{name}", f"write it as `{hook.written(name)}`"
    own = class_function(found)
    if own is None:
        return f"{place} is no method; {fix}"
    for option in _REFUSED_OPTIONS if hook.host_wide else (*_REFUSED_OPTIONS, *_ORDER_OPTIONS):
        if (_options(own) or {}).get(option):
            return f"{place} is marked @hookimpl({option}=…), which toolplug does not support here; {fix}"
    if not _takes(own, hook):
        return f"{place}{unread_signature(own.function)} does not take what a host gives it; {fix}"
    if hook.host_wide and _yields(own):
        return f"{place} must not yield; {fix}"
    if hook.waits is not None and hook.waits is not own.is_async:
        return f"{place} must {'' if hook.waits else 'not '}be async; {fix}"
    return None


def _takes(own: ClassFunction, hook: _Hook) -> bool:
    if hook.host_wide:  # pluggy gives those parameters that have no default and can be filled by position
        parameters = [*unread_signature(own.function).parameters.values()][own.bound :]
        passed = {item.name for item in parameters if item.kind in _BY_POSITION and item.default is item.empty}
        return passed == set(hook.arguments) and own.takes(*hook.arguments, by_name=True)
    return own.takes(*hook.arguments) and own.takes(*hook.arguments, by_name=True)


_BY_POSITION = frozenset({inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD})


def _yields(own: ClassFunction) -> bool:
    function = inspect.unwrap(own.function)
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _misnamed(kind: type) -> Iterator[str]:
    """Methods that are marked as hooks and are none, and those that look like a misspelt hook."""
    hooks = [own.function for name in HOOKS if (own := class_function(inspect.getattr_static(kind, name, None)))]
    for name in dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base)):
        own = class_function(inspect.getattr_static(kind, name))
        if own is None or own.function in hooks or hasattr(own.function, MARKS):
            continue
        place, options = f"{kind.__qualname__}.{name}", _options(own)
        if options is not None:
            if not options.get("optionalhook"):
                yield f"{place} is marked @hookimpl and is no hook; {name_hint(name, HOOKS)}"
        elif not name.startswith("_") and (meant := _meant(kind, name, own)) is not None:
            fix = f"write it as `{HOOKS[meant].written(meant)}`, or begin its name with _ if it is no hook"
            yield f"{place} is no hook, and is never called; nearest: {meant!r}; {fix}"


def _meant(kind: type, name: str, own: ClassFunction) -> str | None:
    """The hook that a method's name and parameters are nearly those of, unless the class implements it too.

    A method `names` is nobody's misspelt `name`.
    """
    given = set([*unread_signature(own.function).parameters][own.bound :])
    best, alike = None, 0.0
    for candidate, hook in HOOKS.items():
        implemented = sum(candidate in vars(base) for base in kind.__mro__) > (not hook.host_wide)
        fits = given <= set(hook.arguments) and bool(given) == bool(hook.arguments)
        if candidate == "name" or implemented or not fits:
            continue
        ratio = SequenceMatcher(None, candidate, name).ratio()
        if ratio >= (_ALIKE if given else _ALIKE_WITHOUT_ARGUMENTS) and ratio > alike:
            best, alike = candidate, ratio
    return best
