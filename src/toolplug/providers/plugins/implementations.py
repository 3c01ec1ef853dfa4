"""The hook implementations of a plugin, read and checked when it is loaded.

What pluggy would ignore, or what a host cannot honour, is a problem with its place and its fix: a plugin with a problem
is `incompatible`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from types import FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple, TypeVar, cast

from pluggy import HookimplOpts

from toolplug.config.nearest import name_hint
from toolplug.signatures.annotations import ClassFunction, class_function, unread_signature

PROJECT = "toolplug"
"""The name of the project for pluggy."""

MARKS = "__toolplug__"
"""The attribute of a function that holds the marks of `@tool` and `@route`."""

TITLE = "__toolplug_title__"
"""In the globals of a module that is a file: its name for people."""

Asked = Literal["provider", "call", "plugin", "read"]
"""Whom a hook is asked of, and when.

`provider`: one plugin, about its own tools, routes and metrics. `call`: every plugin, around each call. `plugin`: every
plugin, after its start. `read`: every plugin that is read, before anything is started.
"""


class Hook(NamedTuple):
    """How a hook is called; `waits` is True for `async def`, False for `def`, and None for either.

    `also` are further arguments, which few implementations need.
    """

    arguments: tuple[str, ...] = ()
    asked: Asked = "provider"
    waits: bool | None = False
    wraps: bool = False
    also: tuple[str, ...] = ()

    @property
    def given_arguments(self) -> tuple[str, ...]:
        """The arguments of the hook, without those that a plugin is given for itself."""
        return (*self.arguments, *self.also)

    @property
    def accepted_arguments(self) -> tuple[str, ...]:
        """The arguments that an implementation may take."""
        return (
            self.given_arguments
            if self.asked == "read" or "site" in self.arguments
            else (*self.given_arguments, "site")
        )

    def example_line(self, name: str, first: Sequence[str] = ()) -> str:
        """Return the first line of a valid implementation, such as `def before_call(self, call, context)`."""
        return f"{'async ' if self.waits else ''}def {name}({', '.join((*first, *self.arguments))})"


HOOKS: Mapping[str, Hook] = {
    "tools": Hook(),
    "can_execute": Hook(("name",)),
    "execute": Hook(("call", "context"), waits=True),
    "routes": Hook(),
    "collectors": Hook(),
    "prompts": Hook(),
    "resources": Hook(),
    "start": Hook(("site",), waits=True),
    "aclose": Hook(waits=True),
    "diagnose": Hook(waits=True),
    "before_call": Hook(("call", "context"), "call", None, wraps=True, also=("tool",)),
    "change_result": Hook(("call", "context", "result"), "call", None, wraps=True, also=("tool",)),
    "after_call": Hook(("call", "context", "result"), "call", None, also=("tool", "duration_s")),
    "call_tracers": Hook(asked="plugin"),
    "rank_tools": Hook(("query", "tools"), "plugin", None),
    "describe_tools": Hook(("catalog",), "plugin", None),
    "provider_changed": Hook(("record",), "plugin", None),
    "approval_waiting": Hook(("ticket",), "plugin", None),
    "approval_decided": Hook(("ticket",), "plugin", None),
    "grant_revoked": Hook(("grant",), "plugin", None),
    "console_pages": Hook(asked="plugin"),
    "mcp_extensions": Hook(asked="plugin"),
    "toolset_sources": Hook(asked="plugin"),
    "check_toolset_address": Hook(("kind", "address"), "read"),
    "stores": Hook(asked="read"),
    "host_part": Hook(asked="read"),
    "commands": Hook(("app",), "read"),
}

_ALIKE = 0.8
_ALIKE_WITHOUT_ARGUMENTS = 0.88
"""Without parameters a name has to be nearer before it counts as a misspelt hook: `tool` does, `collect` does not."""

_PASSED_BY_POSITION = frozenset({inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD})
_STARRED = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})

NO_OPTIONS: HookimplOpts = {
    "wrapper": False,
    "hookwrapper": False,
    "optionalhook": False,
    "tryfirst": False,
    "trylast": False,
    "specname": None,
}


class Implementation(NamedTuple):
    """One implementation: the hook, the function's name in the plugin, and the options of its `@hookimpl`."""

    hook: str
    attribute: str
    options: HookimplOpts


class ForeignHook(NamedTuple):
    """A marked function whose hook is not the host's: perhaps that of another plugin.

    `problem` is one of `PluginHooks.problems` unless some plugin has the hook; empty for `optionalhook=True`.
    """

    implementation: Implementation
    arguments: tuple[str, ...]
    place: str
    problem: str

    def wrong_arguments(self, accepted: Collection[str]) -> str:
        """Return what is wrong with its arguments, where the hook has these; empty if nothing is."""
        wrong = next((name for name in self.arguments if name not in accepted), None)
        if wrong is None:
            return ""
        return f"{self.place} takes {wrong!r}, and the arguments of this hook are {', '.join(accepted) or 'none'}"


class PluginHooks(NamedTuple):
    """The implementations of a plugin in the order of definition, and what is wrong with them.

    `foreign` are those of hooks that other plugins specify; the `problems` have each that must exist.
    """

    implementations: tuple[Implementation, ...] = ()
    problems: tuple[str, ...] = ()
    foreign: tuple[ForeignHook, ...] = ()

    def problems_with(self, hooks: Mapping[str, Collection[str]]) -> tuple[str, ...]:
        """Return what is wrong where plugins specify these hooks, each with its arguments."""
        known = [item for item in self.foreign if item.implementation.hook in hooks]
        solved = {item.problem for item in known}
        wrong = [item.wrong_arguments(hooks[item.implementation.hook]) for item in known]
        return (*(problem for problem in self.problems if problem not in solved), *filter(None, wrong))

    @property
    def own_problems(self) -> tuple[str, ...]:
        """What is wrong whatever hooks other plugins specify."""
        return self.problems_with({item.implementation.hook: item.arguments for item in self.foreign})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the implemented hooks, in the order of the specifications."""
        own = {item.hook for item in self.implementations}
        return tuple(name for name in HOOKS if name in own)

    @property
    def around_calls(self) -> bool:
        """Whether the plugin takes part in each call of its host."""
        return any(HOOKS[item.hook].asked == "call" for item in self.implementations)


NO_HOOKS = PluginHooks()


class _Member(NamedTuple):
    """A function of a plugin: its name there, its place for messages, and what `@hookimpl` says."""

    name: str
    place: str
    own: ClassFunction
    options: Mapping[str, Any] | None

    @property
    def first(self) -> tuple[str, ...]:
        """The parameter that is bound to an instance or a class."""
        return ("self",) if self.own.bound else ()

    def with_line(self, problem: str) -> str:
        """Return the problem with the line of the function, which its author can open."""
        code = inspect.unwrap(self.own.function).__code__
        return f"{problem} (at {code.co_filename}:{code.co_firstlineno})"


T = TypeVar("T")


def read_hooks(plugin: object, base: type | None = None) -> PluginHooks:
    """Return the hooks of a plugin: a class, an instance, or a module.

    `base` is `FunctionProvider` for its subclasses and their instances: there a method with the name of a hook needs no
    mark, the methods of `base` itself do not count, and each name that is nearly a hook's is a problem.
    """
    # A name that a subclass overrides is looked at once, as the subclass has it.
    members = {member.name: member for member in _members(plugin, base)}
    found: list[Implementation] = []
    foreign: list[ForeignHook] = []
    problems: list[str] = []
    for name, hook in HOOKS.items():
        wrong = _not_callable(plugin, name, base)
        problems += [f"{wrong} is no method; write it as `{hook.example_line(name, ('self',))}`"] if wrong else []
    for member in members.values():
        hook_name = _hook_of(member, base)
        if hook_name is None:
            strange = [member.with_line(wrong) for wrong in _strange(plugin, member, members, base)]
            problems += strange
            if member.options is not None:
                foreign.append(_foreign(member, member.options, strange))
            continue
        options = cast("HookimplOpts", {**NO_OPTIONS, **(member.options or {})})
        wrong = _problem(member, hook_name, options, base)
        if wrong:
            problems.append(member.with_line(wrong))
        elif any(item.hook == hook_name and HOOKS[hook_name].asked == "provider" for item in found):
            problems.append(member.with_line(f"{member.place} is a second implementation of {hook_name!r}; keep one"))
        else:
            found.append(Implementation(hook_name, member.name, options))
    # pluggy looks for a registered plugin by equality, and would take two equal objects for one.
    if found and not isinstance(plugin, type | ModuleType) and type(plugin).__eq__ is not object.__eq__:
        kind = type(plugin).__qualname__
        problems.append(f"{kind} defines __eq__, and plugins are told apart by identity; write @dataclass(eq=False)")
    return PluginHooks(tuple(found), tuple(problems), tuple(foreign))


def _foreign(member: _Member, given: Mapping[str, Any], strange: Sequence[str]) -> ForeignHook:
    options = cast("HookimplOpts", {**NO_OPTIONS, **given})
    item = Implementation(options["specname"] or member.name, member.name, options)
    taken = taken_arguments(member.own.function)[member.own.bound :]
    return ForeignHook(item, taken, member.place, "".join(strange))


def specified_hooks(plugin: object) -> dict[str, Callable[..., object]]:
    """Return the functions that a plugin, or the module of its class, marks with `@hookspec`, by name."""
    namespace = plugin if isinstance(plugin, ModuleType) else sys.modules.get(getattr(plugin, "__module__", ""))
    found: dict[str, object] = vars(namespace) if namespace is not None else {}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, FunctionType) and name not in HOOKS and hasattr(value, f"{PROJECT}_spec")
    }


def asking(function: Callable[..., T], hook: str, attribute_site: object = None) -> Callable[..., T]:
    """Return a function of the hook's arguments, by position, that passes on those which the implementation takes.

    `attribute_site` is what it gets for `site`, unless that is an argument of the hook itself.
    """
    arguments = HOOKS[hook].given_arguments
    taken = taken_arguments(function)
    # The function itself, without a lambda around it: hooks around calls are asked for each call.
    if taken == arguments:
        return function
    if not taken:
        return lambda *given: function()
    places = [arguments.index(name) if name in arguments else -1 for name in taken]
    if places == [0, 1]:  # the usual ones, and every call pays for them
        return _first_two(function)
    if -1 not in places and places == [*range(places[0], places[-1] + 1)]:
        part = slice(places[0], places[-1] + 1)
        return lambda *given: function(*given[part])
    if -1 in places:
        return lambda *given: function(*[(*given, attribute_site)[place] for place in places])
    return lambda *given: function(*[given[place] for place in places])


def _first_two(function: Callable[..., T]) -> Callable[..., T]:
    def pass_two(first: object, second: object, *_: object) -> T:
        return function(first, second)

    return pass_two


def taken_arguments(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the parameters that pluggy passes: those by position without a default."""
    parameters = unread_signature(function).parameters.values()
    return tuple(item.name for item in parameters if item.kind in _PASSED_BY_POSITION and item.default is item.empty)


def marks_of(function: object) -> tuple[object, ...]:
    """Return the marks that `@tool` and `@route` left on a function."""
    return getattr(function, MARKS, ())


def _members(plugin: object, base: type | None) -> Iterator[_Member]:
    """Yield the functions of a plugin; those of a module are what its names stand for."""
    if isinstance(plugin, ModuleType):
        title = module_title(plugin)
        for name, value in vars(plugin).items():
            if isinstance(value, FunctionType):
                yield _Member(name, f"{title}.{name}", ClassFunction(value, False), _options(value, value))
        return
    kind = plugin if isinstance(plugin, type) else type(plugin)
    skipped = (object,) if base is None else base.__mro__
    # In the order of definition, base classes first; `dir` would sort them.
    names = dict.fromkeys(name for each in reversed(kind.__mro__) if each not in skipped for name in vars(each))
    for name in names:
        # Static: a property of the author must not run while its class is looked at.
        found: object = inspect.getattr_static(kind, name)
        own = class_function(found)
        if own is not None:
            yield _Member(name, f"{kind.__qualname__}.{name}", own, _options(found, own.function))
    if not isinstance(plugin, type):
        for name, value in getattr(plugin, "__dict__", {}).items():
            if isinstance(value, FunctionType | MethodType) and (options := _options(value, value)) is not None:
                yield _Member(name, f"{kind.__qualname__}.{name}", ClassFunction(value, False), options)


def module_title(module: ModuleType) -> str:
    """Return the name of a module for messages; that of a file is its stem."""
    return str(vars(module).get(TITLE, module.__name__))


def _options(holder: object, function: object) -> Mapping[str, Any] | None:
    """Return what `@hookimpl(…)` says, above or below `@staticmethod`; None for a function without it."""
    return getattr(holder, f"{PROJECT}_impl", None) or getattr(function, f"{PROJECT}_impl", None)


def _hook_of(member: _Member, base: type | None) -> str | None:
    """Return the hook that a function implements."""
    if member.options is not None:
        named = member.options.get("specname") or member.name
        return named if named in HOOKS else None
    return member.name if base is not None and member.name in HOOKS and not marks_of(member.own.function) else None


def _not_callable(plugin: object, name: str, base: type | None) -> str | None:
    """Return the place of an attribute that has the name of a hook and is no method."""
    if base is None:
        return None
    kind = plugin if isinstance(plugin, type) else type(plugin)
    found: object = inspect.getattr_static(kind, name, None)
    return f"{kind.__qualname__}.{name}" if found is not None and class_function(found) is None else None


def _problem(member: _Member, hook_name: str, options: HookimplOpts, base: type | None) -> str | None:
    """Return what is wrong with an implementation."""
    hook, own, place = HOOKS[hook_name], member.own, member.place
    fix = f"write it as `{hook.example_line(hook_name, member.first)}`"
    refused = _refused_option(hook, options, base)
    if refused is not None:
        return f"{place} is marked @hookimpl({refused}=…), which is not possible for {hook_name!r}; {fix}"
    wrong = _wrong_parameter(member, hook)
    if wrong is not None:
        return f"{place}{unread_signature(own.function)} {wrong}; {fix}"
    function = inspect.unwrap(own.function)
    yields = inspect.isgeneratorfunction(function)
    if options["wrapper"] and not yields:
        return (
            f"{place} is marked @hookimpl(wrapper=True) and is no synchronous generator; write a `def` with one yield"
        )
    if inspect.isasyncgenfunction(function) or (yields and not options["wrapper"] and hook.asked == "call"):
        way = "; a wrapper is a `def` with one yield and @hookimpl(wrapper=True)" if hook.wraps else ""
        return f"{place} must not yield; {fix}{way}"
    if hook.waits is not None and hook.waits is not own.is_async:
        return f"{place} must {'' if hook.waits else 'not '}be async; {fix}"
    if hook.asked == "read" and base is not None and _needs_instance(member):
        return (
            f"{place} is asked before there is an instance; make it a @staticmethod: `{hook.example_line(hook_name)}`"
        )
    return None


def _refused_option(hook: Hook, options: HookimplOpts, base: type | None) -> str | None:
    if options["hookwrapper"]:
        return "hookwrapper"
    if options["wrapper"] and not hook.wraps:
        return "wrapper"
    if hook.asked == "provider":
        for option in ("tryfirst", "trylast"):
            if options[option]:
                return option
        if options["specname"] and base is not None:
            return "specname"
    return None


def _needs_instance(member: _Member) -> bool:
    parameters = [*unread_signature(member.own.function).parameters]
    return member.own.bound and parameters[:1] == ["self"]


def _wrong_parameter(member: _Member, hook: Hook) -> str | None:
    """Return why the parameters of a function do not fit the arguments of its hook."""
    parameters = [*unread_signature(member.own.function).parameters.values()]
    if member.own.bound and not (parameters and parameters[0].kind in _PASSED_BY_POSITION | _STARRED):
        return "takes no `self`"
    accepted = hook.accepted_arguments
    for item in parameters[member.own.bound :]:
        known = item.name in accepted
        if item.kind in _STARRED:
            return f"takes {item}, to which a host passes nothing"
        if item.kind is item.KEYWORD_ONLY and (known or item.default is item.empty):
            return f"takes {item.name!r} by keyword only, and a host passes arguments by position"
        if known and item.default is not item.empty:
            return f"has a default for {item.name!r}, and a host passes nothing to such a parameter"
        if not known and item.default is item.empty:
            return f"takes {item.name!r}, and the arguments of this hook are {', '.join(accepted) or 'none'}"
    return None


def _strange(plugin: object, member: _Member, members: Mapping[str, _Member], base: type | None) -> Iterator[str]:
    """Yield the problem of a function that is marked and is no hook, or that looks like a misspelt one."""
    options = member.options
    if options is not None:
        if not options.get("optionalhook"):
            named = options.get("specname") or member.name
            yield f"{member.place} is marked @hookimpl and is no hook; {name_hint(named, HOOKS)}"
        return
    if marks_of(member.own.function) or member.name.startswith("_") or _is_alias(member, members):
        return
    # Imported from elsewhere, such as a helper that has a similar name.
    if isinstance(plugin, ModuleType) and member.own.function.__module__ != plugin.__name__:
        return
    meant = _meant(member, members, any_hook=base is not None)
    if meant is None:
        return
    written = HOOKS[meant].example_line(meant, member.first)
    if member.name == meant:
        yield f"{member.place} has the name of a hook and no mark, and is never called; mark it with @hookimpl"
    else:
        fix = f"write it as `{written}`, or begin its name with _ if it is no hook"
        yield f"{member.place} is no hook, and is never called; nearest: {meant!r}; {fix}"


def _is_alias(member: _Member, members: Mapping[str, _Member]) -> bool:
    """Return whether the function is a hook of the plugin under another name."""
    function = member.own.function
    return any(
        other.own.function is function for name, other in members.items() if name in HOOKS and name != member.name
    )


def _meant(member: _Member, members: Mapping[str, _Member], *, any_hook: bool) -> str | None:
    """Return the hook that a name and its parameters are nearly those of, unless the plugin implements it too.

    Outside of providers, where hooks are marked, only those around calls count.
    """
    given = set([*unread_signature(member.own.function).parameters][member.own.bound :])
    best, alike = None, 0.0
    for name, hook in HOOKS.items():
        if not any_hook and hook.asked != "call":
            continue
        implemented = name in members and name != member.name
        if implemented or not given <= set(hook.accepted_arguments) or bool(given) != bool(hook.arguments):
            continue
        # After the parameters, which rule out most names: the comparison is the expensive part.
        ratio = SequenceMatcher(None, name, member.name).ratio()
        if ratio >= (_ALIKE if given else _ALIKE_WITHOUT_ARGUMENTS) and ratio > alike:
            best, alike = name, ratio
    return best
