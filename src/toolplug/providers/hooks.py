"""What a provider may implement, as pluggy hookspecs, and the check of a class against them.

A tool never runs through a hook: a hook is one to many and a call is one to one. pluggy checks the signatures here and
finds the misspelt ones; the registry calls the instance itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import pluggy
from prometheus_client.registry import Collector
from starlette.routing import Route

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.definition import ToolDefinition
from toolplug.providers.site import ProviderContext
from toolplug.signatures.annotations import class_function, unread_signature

PROJECT = "toolplug"

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)


class HookSpecs(Protocol):
    """Every hook. `FunctionProvider` has a default for each but the two that are called around every tool call."""

    @hookspec
    def name(self) -> str:
        """The provider's name: its key in the configuration."""
        ...

    @hookspec
    def tools(self) -> Sequence[ToolDefinition]:
        """The tools, in listing order; read once, after `start`."""
        ...

    @hookspec
    def can_execute(self, name: str) -> bool:
        """Is this one of the provider's tools; a listed one that is refused here is left out."""
        ...

    @hookspec
    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Run one call, with arguments that are valid by the schema."""
        ...

    @hookspec
    def routes(self) -> Sequence[Route]:
        """HTTP routes beside those of `@route`; the host puts authentication (scope `tools:call`) around them."""
        ...

    @hookspec
    def collectors(self) -> Sequence[Collector]:
        """Metrics of the provider's own; read once, after `start`, and scraped while it is active."""
        ...

    @hookspec
    async def start(self, site: ProviderContext) -> None:
        """Get ready: open connections, make files; called once, before anything else but the constructor."""
        ...

    @hookspec
    async def aclose(self) -> None:
        """Give everything back; called once, also after a `start` that failed."""
        ...

    @hookspec
    async def before_call(self, call: ToolCall, context: CallContext) -> str | None:
        """Host-wide, before each call of any provider's tool; a returned reason is a veto. May be a plain `def`."""
        ...

    @hookspec
    async def after_call(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        """Host-wide, after each call of any provider's tool, with its result. May be a plain `def`."""
        ...


class _Hook(NamedTuple):
    """How a hook is called. `waits`: it must be `async def`; None: it may be either."""

    arguments: tuple[str, ...] = ()
    by_name_only: bool = False
    waits: bool | None = False

    def written(self, name: str) -> str:
        """The right first line, for people."""
        return f"{'async ' if self.waits else ''}def {name}({', '.join(('self', *self.arguments))})"


HOOKS: Mapping[str, _Hook] = {
    "name": _Hook(),
    "tools": _Hook(),
    "can_execute": _Hook(("name",)),
    "execute": _Hook(("call", "context"), waits=True),
    "routes": _Hook(),
    "collectors": _Hook(),
    "start": _Hook(("site",), waits=True),
    "aclose": _Hook(waits=True),
    "before_call": _Hook(("call", "context"), by_name_only=True, waits=None),
    "after_call": _Hook(("call", "context", "result"), by_name_only=True, waits=None),
}


def mark_hooks(kind: type) -> None:
    """Mark the class's own hooks as implementations, so that authors need not."""
    for name in HOOKS:
        own = class_function(inspect.getattr_static(kind, name, None))
        if own is not None and not hasattr(own.function, f"{PROJECT}_impl"):
            hookimpl(own.function)


def hook_problems(kind: type) -> tuple[str, ...]:
    """What is wrong with the class's hooks, each with the method and what would be right; empty when all are."""
    problems = [problem for name, hook in HOOKS.items() if (problem := _problem(kind, name, hook))]
    return tuple(problems) or _refused_by_pluggy(kind)


def _problem(kind: type, name: str, hook: _Hook) -> str | None:
    found: object = inspect.getattr_static(kind, name, None)
    if found is None:
        return None
    place, right = f"{kind.__qualname__}.{name}", f"write it as `{hook.written(name)}`"
    own = class_function(found)
    if own is None:
        return f"{place} is no method; {right}"
    by_place = hook.by_name_only or own.takes(*hook.arguments)
    if not (by_place and own.takes(*hook.arguments, by_name=True)):
        return f"{place}{unread_signature(own.function)} does not take what a host gives it; {right}"
    if hook.waits is not None and hook.waits is not own.is_async:
        return f"{place} must {'' if hook.waits else 'not '}be async; {right}"
    return None


def _refused_by_pluggy(kind: type) -> tuple[str, ...]:
    """What pluggy says, above all of marked methods that are no hooks."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    try:
        manager.register(kind)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        return (" ".join(str(error).split()),)
    return ()
