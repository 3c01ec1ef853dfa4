"""Hooks: what a plugin may implement, and what is wrong with an implementation that a host cannot honour."""

from __future__ import annotations

import inspect
import re
from functools import wraps
from types import ModuleType
from typing import Any

import pytest

from toolplug import hookspecs
from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.hookspecs import hookimpl
from toolplug.providers.authoring import tool
from toolplug.providers.plugins.implementations import HOOKS
from toolplug.providers.plugins.registration import PluginManager
from toolplug.providers.plugins.shapes import hooks_of
from toolplug.providers.provider import FunctionProvider

AT = re.compile(rf" \(at {re.escape(__file__)}:\d+\)$")


def hook_problems(plugin: object) -> tuple[str, ...]:
    """The problems of a plugin without the lines of its functions, which are in this file."""
    return tuple(AT.sub("", problem) for problem in hooks_of(plugin).problems)


@pytest.mark.requirement("C-12-near-hook")
def test_a_wrong_hook_is_told_with_the_line_of_its_author() -> None:
    class Bad(FunctionProvider):
        def before_call(self, nonsense: object) -> None: ...

        async def close(self) -> None: ...

        @hookimpl
        def hears(self, call: object) -> None: ...

    lines, first = inspect.getsourcelines(Bad)
    places = [first + number for number, line in enumerate(lines) if "def before_call" in line or "def close" in line]
    places.append(first + next(number for number, line in enumerate(lines) if "@hookimpl" in line))
    assert [problem.rpartition(" (at ")[2] for problem in hooks_of(Bad).problems] == [
        f"{__file__}:{line})" for line in places
    ]


@pytest.mark.requirement("FR-001", "I2-4-hookspecs")
def test_every_hook_has_a_specification_with_its_arguments_and_a_description() -> None:
    manager = PluginManager()
    assert list(vars(manager.hook)) == sorted(HOOKS)
    for name, hook in HOOKS.items():
        specification = getattr(manager.hook, name).spec
        assert specification.argnames == hook.accepted_arguments
        assert inspect.iscoroutinefunction(specification.function) is bool(hook.waits)
        assert inspect.getdoc(getattr(hookspecs, name))


@pytest.mark.requirement("I2-4-hookspecs")
def test_a_providers_own_methods_are_its_hooks_without_a_mark_and_inherited_defaults_are_not() -> None:
    class Quiet(FunctionProvider):
        def collectors(self) -> list[Any]:
            return []

        async def before_call(self, call: ToolCall, context: CallContext) -> str | None: ...

    assert hooks_of(Quiet).names == hooks_of(Quiet(key="quiet")).names == ("collectors", "before_call")


def test_a_mixin_that_is_no_provider_implements_hooks_too() -> None:
    class Metered:
        def collectors(self, registry: object) -> list[Any]:
            return []

    class Provider(Metered, FunctionProvider): ...  # type: ignore[misc]

    assert len(hook_problems(Provider)) == 1


def test_an_explicit_mark_keeps_what_its_author_wrote() -> None:
    class Provider(FunctionProvider):
        @hookimpl(tryfirst=True)
        def after_call(self, call: ToolCall, context: CallContext, result: ToolResult) -> None: ...

    (found,) = hooks_of(Provider).implementations
    assert (found.hook, found.options["tryfirst"], hook_problems(Provider)) == ("after_call", True, ())


@pytest.mark.requirement("I2-4-hookspecs")
def test_an_implementation_takes_the_arguments_that_it_needs() -> None:
    class Provider(FunctionProvider):
        async def start(self, site, retries=3): ...
        async def aclose(self, site): ...
        async def execute(self, call): ...
        def can_execute(self, name): ...
        def before_call(self, context): ...
        async def after_call(self, result, site, call, note=""): ...

        @staticmethod
        def commands(app): ...

        @hookimpl(wrapper=True)
        def change_result(self):
            return (yield)

        @staticmethod
        def routes():
            return ()

        @classmethod
        def tools(cls):
            return ()

    assert hook_problems(Provider) == ()


def test_a_wrapped_asynchronous_hook_is_still_one() -> None:
    def logged(function: Any) -> Any:
        @wraps(function)
        def wrapper(*arguments: Any) -> Any:
            return function(*arguments)

        return wrapper

    class Provider(FunctionProvider):
        @logged
        async def aclose(self) -> None: ...

    assert hook_problems(Provider) == ()


async def coroutine(self: object) -> None: ...


def plain(self: object, site: object) -> None: ...


async def coroutine_of_site(self: object, site: object) -> None: ...


async def retrying(self, call, attempt): ...  # type: ignore[no-untyped-def]


def plain_check(self: object, call: object) -> None: ...


def yielding(self: object, call: object, context: object) -> Any:
    yield


async def async_yielding(self: object, call: object) -> Any:
    yield


def marked() -> Any:
    def hook(self: object, call: object, context: object) -> Any:
        return (yield)

    return hook


@pytest.mark.requirement("I2-4-hookspecs", "C-5-state-incompatible")
@pytest.mark.parametrize(
    ("name", "member", "problem"),
    [
        ("start", plain, "Bad.start must be async; write it as `async def start(self, site)`"),
        ("aclose", lambda self: None, "Bad.aclose must be async"),
        ("tools", coroutine, "Bad.tools must not be async"),
        ("tools", "notes", "Bad.tools is no method; write it as `def tools(self)`"),
        ("routes", property(lambda self: ()), "Bad.routes is no method"),
        ("execute", retrying, "Bad.execute(self, call, attempt) takes 'attempt', and the arguments of this hook are"),
        ("can_execute", lambda self, tool: True, "takes 'tool', and the arguments of this hook are name, site"),
        ("before_call", lambda self, *, call: None, "takes 'call' by keyword only, and a host passes arguments by"),
        ("before_call", lambda self, call, context=None: None, "has a default for 'context', and a host passes"),
        ("after_call", lambda self, **given: None, "takes **given, to which a host passes nothing"),
        ("after_call", lambda: None, "Bad.after_call() takes no `self`"),
        ("before_call", yielding, "Bad.before_call must not yield; write it as `def before_call(self, call, context)`"),
        ("before_call", async_yielding, "Bad.before_call must not yield"),
        ("before_call", hookimpl(wrapper=True)(plain_check), "is marked @hookimpl(wrapper=True) and is no synchronous"),
        (
            "after_call",
            hookimpl(wrapper=True)(marked()),
            "@hookimpl(wrapper=…), which is not possible for",
        ),
        ("before_call", hookimpl(hookwrapper=True)(marked()), "is marked @hookimpl(hookwrapper=…), which is not"),
        ("start", hookimpl(specname="start")(coroutine_of_site), "@hookimpl(specname=…), which is not possible"),
        ("routes", hookimpl(tryfirst=True)(lambda self: ()), "Bad.routes is marked @hookimpl(tryfirst=…), which"),
        ("commands", lambda self, app: None, "is asked before there is an instance; make it a @staticmethod"),
    ],
)
def test_a_wrong_hook_is_told_with_its_method(name: str, member: object, problem: str) -> None:
    (told,) = hook_problems(type("Bad", (FunctionProvider,), {name: member}))
    assert problem in told


@pytest.mark.requirement("C-5-state-incompatible")
def test_every_wrong_hook_is_told_at_once_with_the_right_first_line() -> None:
    class Bad(FunctionProvider):
        def start(self) -> None: ...  # type: ignore[override]
        def after_call(self, outcome: ToolResult) -> None: ...

    name = Bad.__qualname__
    assert hook_problems(Bad) == (
        f"{name}.start must be async; write it as `async def start(self, site)`",
        f"{name}.after_call{inspect.signature(Bad.after_call)} takes 'outcome', and the arguments of this hook are "
        "call, context, result, tool, duration_s, site; write it as `def after_call(self, call, context, result)`",
    )


def test_a_marked_method_that_is_no_hook_is_told() -> None:
    class Bad(FunctionProvider):
        @hookimpl
        def befor_call(self, call: ToolCall) -> None: ...

    (told,) = hook_problems(Bad)
    assert told == f"{Bad.__qualname__}.befor_call is marked @hookimpl and is no hook; nearest: 'before_call'"


def test_a_marked_method_may_be_for_a_hook_of_another_version() -> None:
    class Provider(FunctionProvider):
        @hookimpl(optionalhook=True)
        def before_cal(self, call: ToolCall) -> None: ...

    assert hook_problems(Provider) == ()


@pytest.mark.requirement("C-12-near-hook")
@pytest.mark.parametrize(
    ("name", "member", "hook"),
    [
        ("befor_call", lambda self, call: None, "def before_call(self, call, context)"),
        ("before_tool_call", lambda self, call, context: None, "def before_call(self, call, context)"),
        ("on_after_call", lambda self, result: None, "def after_call(self, call, context, result)"),
        ("on_start", lambda self, site: None, None),
        ("starts", lambda self, site: None, "async def start(self, site)"),
        ("aclsoe", lambda self: None, None),
        ("close", lambda self: None, "async def aclose(self)"),
        ("collector", lambda self: (), "def collectors(self)"),
    ],
)
def test_a_method_that_looks_like_a_misspelt_hook_is_told(name: str, member: object, hook: str | None) -> None:
    problems = hook_problems(type("Bad", (FunctionProvider,), {name: member}))
    if hook is None:
        assert problems == ()
        return
    meant = hook.partition("(")[0].rpartition(" ")[2]
    assert problems == (
        f"Bad.{name} is no hook, and is never called; nearest: {meant!r}; "
        f"write it as `{hook}`, or begin its name with _ if it is no hook",
    )


@pytest.mark.requirement("C-12-near-hook")
def test_methods_of_other_purposes_may_have_names_like_hooks() -> None:
    class Provider(FunctionProvider):
        before_calls = 3

        def before_all(self) -> None: ...
        def names(self) -> None: ...
        def collect(self) -> None: ...
        def _before_cal(self, call: object) -> None: ...
        def stat(self, path: object) -> None: ...
        def close(self) -> None: ...

        async def aclose(self) -> None:
            self.close()

        shutdown = aclose

        @tool
        def starts(self, site: str) -> str:
            """Tell when a site starts."""
            return site

    assert hook_problems(Provider) == ()


@pytest.mark.requirement("C-12-near-hook", "C-5-state-incompatible")
@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def before_call(call): ...", "guard.before_call has the name of a hook and no mark, and is never called; "),
        ("def before_tool_call(call): ...", "guard.before_tool_call is no hook, and is never called; nearest: "),
        ("@hookimpl\ndef befor_call(call): ...", "guard.befor_call is marked @hookimpl and is no hook; nearest: "),
        ("@hookimpl\ndef before_call(request): ...", "guard.before_call(request) takes 'request', and the arguments"),
        ("@hookimpl\ndef start(site): ...", "guard.start must be async; write it as `async def start(site)`"),
        ("@hookimpl(specname='befor')\ndef check(call): ...", "guard.check is marked @hookimpl and is no hook"),
        (
            "@hookimpl(specname='tools')\ndef a(): ...\n@hookimpl(specname='tools')\ndef b(): ...",
            "guard.b is a second implementation of 'tools'; keep one",
        ),
        ("def before_all(): ...\ndef results(): ...\ndef _before_cal(call): ...\ndef tools(): ...", None),
        ("@hookimpl(specname='before_call')\ndef no_gold(call): ...\n@hookimpl\ndef commands(app): ...", None),
    ],
)
def test_the_functions_of_a_module_are_hooks_where_they_are_marked(code: str, problem: str | None) -> None:
    module = ModuleType("guard")
    exec(f"from toolplug import hookimpl\n{code}", vars(module))
    assert [told.startswith(problem or "") for told in hook_problems(module)] == ([] if problem is None else [True])


@pytest.mark.requirement("C-5-state-incompatible")
def test_an_object_that_compares_by_value_is_no_plugin() -> None:
    class Guard:  # noqa: PLW1641  a @dataclass has no hash either
        @hookimpl
        def before_call(self) -> None: ...

        def __eq__(self, other: object) -> bool:
            return True

    (problem,) = hook_problems(Guard())
    assert problem.endswith("defines __eq__, and plugins are told apart by identity; write @dataclass(eq=False)")
