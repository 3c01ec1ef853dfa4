"""Hooks: every provider method that a host calls is one, and a wrong signature is named with the right one."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

import pluggy
import pytest

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.providers.authoring import tool
from toolplug.providers.hooks import HOOKS, PROJECT, HookSpecs, hook_problems, hookimpl
from toolplug.providers.provider import FunctionProvider


@pytest.mark.requirement("FR-001", "I2-4-hookspecs")
def test_the_hooks_are_the_nine_members_of_a_provider_and_start_and_two_around_each_call() -> None:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    offered = ["tools", "routes", "collectors", "prompts", "resources"]
    nine = ["name", *offered, "can_execute", "execute", "aclose"]
    assert set(vars(manager.hook)) == {*nine, "start", "before_call", "after_call"} == set(HOOKS)
    for name, hook in HOOKS.items():
        assert getattr(manager.hook, name).spec.argnames == hook.arguments


@pytest.mark.requirement("I2-4-hookspecs")
def test_the_base_class_and_each_override_are_implementations_without_a_mark_by_the_author() -> None:
    class Quiet(FunctionProvider):
        def collectors(self) -> list[Any]:
            return []

        async def before_call(self, call: ToolCall, context: CallContext) -> str | None: ...

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    quiet = Quiet(key="quiet")
    manager.register(quiet, "quiet")
    manager.check_pending()
    found = {name: getattr(manager.hook, name).get_hookimpls() for name in HOOKS}
    assert [name for name, implementations in found.items() if implementations] == [*list(HOOKS)[:-2], "before_call"]
    assert found["collectors"][0].function == quiet.collectors
    assert manager.hook.name() == ["quiet"]


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

    assert Provider.after_call.toolplug_impl["tryfirst"]  # type: ignore[attr-defined]
    assert hook_problems(Provider) == ()


@pytest.mark.requirement("I2-4-hookspecs")
def test_right_signatures_are_no_problem() -> None:
    class Provider(FunctionProvider):
        async def start(self, site, retries=3): ...
        async def execute(self, call, context): ...
        def can_execute(self, name): ...
        def before_call(self, call, context): ...
        async def after_call(self, result, call, context, note=""): ...

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


def yielding(self: object, call: object, context: object) -> Any:
    yield


def marked() -> Any:
    def hook(self: object, call: object, context: object) -> Any:
        return (yield)

    return hook


@pytest.mark.requirement("I2-4-hookspecs", "C-5-state-incompatible")
@pytest.mark.parametrize(
    ("name", "member", "problem"),
    [
        ("start", coroutine, "Bad.start(self: 'object') -> 'None' does not take what a host gives it"),
        ("start", plain, "Bad.start must be async"),
        ("aclose", lambda self: None, "Bad.aclose must be async"),
        ("tools", coroutine, "Bad.tools must not be async"),
        ("name", "notes", "Bad.name is no method"),
        ("name", property(lambda self: "notes"), "Bad.name is no method"),
        ("execute", plain, "Bad.execute(self: 'object', site: 'object') -> 'None' does not take"),
        ("before_call", plain, "Bad.before_call(self: 'object', site: 'object') -> 'None' does not take"),
        ("can_execute", lambda self, tool: True, "Bad.can_execute(self, tool) does not take"),
        ("before_call", lambda self, *, call, context: None, "Bad.before_call(self, *, call, context) does not take"),
        ("before_call", lambda self, call, context=None: None, "Bad.before_call(self, call, context=None) does not"),
        ("after_call", lambda self, **given: None, "Bad.after_call(self, **given) does not take"),
        ("before_call", yielding, "Bad.before_call must not yield; write it as `def before_call(self, call, context)`"),
        ("before_call", hookimpl(wrapper=True)(marked()), "Bad.before_call is marked @hookimpl(wrapper=…), which"),
        (
            "after_call",
            hookimpl(hookwrapper=True)(marked()),
            "Bad.after_call is marked @hookimpl(hookwrapper=…), which",
        ),
        ("before_call", hookimpl(specname="after_call")(marked()), "is marked @hookimpl(specname=…), which toolplug"),
        ("routes", hookimpl(tryfirst=True)(lambda self: ()), "Bad.routes is marked @hookimpl(tryfirst=…), which"),
    ],
)
def test_a_wrong_hook_is_told_with_its_method(name: str, member: object, problem: str) -> None:
    (told,) = hook_problems(type("Bad", (FunctionProvider,), {name: member}))
    assert problem in told


@pytest.mark.requirement("C-5-state-incompatible")
def test_every_wrong_hook_is_told_at_once_with_the_right_first_line() -> None:
    class Bad(FunctionProvider):
        async def start(self) -> None: ...  # type: ignore[override]
        def after_call(self, result: ToolResult) -> None: ...

    name = Bad.__qualname__
    assert [problem.partition("; ") for problem in hook_problems(Bad)] == [
        (
            f"{name}.start{inspect.signature(Bad.start)} does not take what a host gives it",
            "; ",
            "write it as `async def start(self, site)`",
        ),
        (
            f"{name}.after_call{inspect.signature(Bad.after_call)} does not take what a host gives it",
            "; ",
            "write it as `def after_call(self, call, context, result)`",
        ),
    ]


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
