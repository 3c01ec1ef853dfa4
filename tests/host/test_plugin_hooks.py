"""Plugins of hooks in a host: arguments, order, wrappers, results that they change, and what the manager shows."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.host.conftest import Package

from toolplug import (
    CallContext,
    FunctionProvider,
    FunctionRegistry,
    Principal,
    ToolCall,
    ToolError,
    ToolResult,
    ToolStatus,
    hookimpl,
    open_host,
    tool,
)
from toolplug.errors import ConfigError
from toolplug.providers.entry import ProviderState

pytestmark = pytest.mark.anyio

GUARD = '''
    """Two hook functions, as in pytest: a pluggy user's first plugin."""

    from toolplug import hookimpl

    @hookimpl
    def before_call(call):
        if call.arguments.get("word") == "gold":
            return "no gold"

    @hookimpl
    def change_result(result):
        return result.output.upper()
'''

ECHO = """
    from toolplug import FunctionProvider, tool

    class Echo(FunctionProvider):
        @tool
        async def echo(self, word: str) -> str:
            return word
"""


class Echo(FunctionProvider):
    @tool
    async def echo(self, word: str) -> str:
        """Return the word."""
        if word == "error":
            raise ToolError("bad word")
        return word

    @tool
    async def facts(self) -> dict[str, int]:
        return {"legs": 8}


async def outputs(registry: FunctionRegistry, *words: str) -> list[str]:
    return [(await registry.execute(ToolCall("c1", "echo", {"word": word}))).output for word in words]


@pytest.mark.requirement("C-12-module-plugin", "C-12-change-result")
async def test_a_module_of_two_hook_functions_is_a_plugin_as_in_pytest(
    package: Package, config: Callable[[str], Path]
) -> None:
    package("toolplug-gold", {"gold": "gold_mod", "echo": "echo_mod:Echo"}, gold_mod=GUARD, echo_mod=ECHO)
    path = config("providers: {echo: {enabled: true}, gold: {enabled: true}}")
    async with open_host(path, environ={}) as host:
        assert await outputs(host.registry, "tin", "gold") == ["TIN", 'tool "echo" is not allowed: hook: no gold']
        assert [(key, plugin.__class__.__name__) for key, plugin in reversed(host.plugins.list_name_plugin())] == [
            ("echo", "Echo"),
            ("gold", "module"),
        ]
        assert [record.hooks for record in host.records()[:2]] == [(), ("before_call", "change_result")]


@pytest.mark.requirement("C-12-object-plugin")
async def test_an_object_has_hooks_tools_and_settings_like_a_provider(
    package: Package, config: Callable[[str], Path]
) -> None:
    code = """
        from pydantic import BaseModel
        from toolplug import hookimpl, tool

        class Counting:
            class Config(BaseModel):
                start: int = 0

            @hookimpl
            async def start(self, site):
                self.site = site
                self.count = site.config.start

            @tool
            async def counted(self) -> int:
                return self.count

            @hookimpl
            async def after_call(self, site, result):
                self.count += 1

        counting = Counting()
    """
    package("toolplug-counting", {"counting": "counting_mod:counting"}, counting_mod=code)
    async with open_host(config("providers: {counting: {enabled: true, start: 5}}"), environ={}) as host:
        results = [(await host.registry.execute(ToolCall("1", "counted"))).output for _ in range(2)]
        plugin: Any = host.plugins.get_plugin("counting")
        assert (results, plugin.site.key, plugin.site.plugins is host.plugins) == (["5", "6"], "counting", True)


@pytest.mark.requirement("C-12-module-plugin", "C-2-reload-swap")
async def test_a_module_has_one_entry_and_changes_its_settings_at_a_restart_only(
    package: Package, config: Callable[[str], Path]
) -> None:
    code = """
        from pydantic import BaseModel
        from toolplug import hookimpl

        closed = []

        class Config(BaseModel):
            word: str = "old"

        @hookimpl
        def before_call(call, site):
            return site.config.word

        @hookimpl
        async def aclose():
            closed.append(True)
    """
    package("toolplug-said", {"said": "said_mod", "echo": "echo_mod:Echo"}, said_mod=code, echo_mod=ECHO)
    echo = "echo: {enabled: true}"
    with pytest.raises(ConfigError) as caught:
        async with open_host(config("providers: {said: {enabled: true}, again: {enabled: true, type: said}}")):
            """Two entries of one module."""
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == ("plugin_twice", "providers.again")
    async with open_host(config(f"providers: {{{echo}, said: {{enabled: true}}}}"), environ={}) as host:
        config(f"providers: {{{echo}, said: {{enabled: true, word: new}}}}")
        with pytest.raises(ConfigError, match="one module or object") as changed:
            await host.reload(by=Principal())
        assert changed.value.problems[0].code == "needs_restart"
        config(f"providers: {{{echo}, said: {{enabled: true, on_failure: allow}}}}")
        await host.reload(by=Principal())
        plugin: Any = host.plugins.get_plugin("said")
        assert await outputs(host.registry, "tin") == ['tool "echo" is not allowed: hook: old']
        assert plugin.closed == []
    assert plugin.closed == [True]


@pytest.mark.requirement("C-12-hook-order")
async def test_plugins_are_asked_in_order_then_by_tryfirst_and_trylast_until_one_refuses() -> None:
    asked: list[str] = []

    def plugin(name: str, reason: str | None = None, **options: bool) -> object:
        class Asked:
            @hookimpl(**options)  # type: ignore[call-overload]
            def before_call(self) -> str | None:
                asked.append(name)
                return reason

        return Asked()

    plugins = {
        "echo": Echo(),
        "late": plugin("late", trylast=True),
        "one": plugin("one"),
        "two": plugin("two", "two refuses"),
        "early": plugin("early", tryfirst=True),
    }
    async with FunctionRegistry(plugins) as registry:
        assert await outputs(registry, "tin") == ['tool "echo" is not allowed: hook: two refuses']
        assert asked == ["early", "one", "two"]
        assert registry.plugins.implementers("before_call") == ("early", "one", "two", "late")


class Wrapping:
    """A wrapper that returns what `answer` makes of what it gets, and notes what it got."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.got: list[object] = []

    @hookimpl(wrapper=True)
    def before_call(self, call: ToolCall) -> Generator[None, str | None, Any]:
        reason = yield
        self.got.append(reason)
        return self.answer(reason)


class Refusing:
    def __init__(self, reason: str | None) -> None:
        self.reason = reason

    @hookimpl
    async def before_call(self) -> str | None:
        await asyncio.sleep(0)
        return self.reason


@pytest.mark.requirement("C-12-wrappers")
@pytest.mark.parametrize(
    ("inner", "answer", "reason"),
    [
        (None, lambda reason: reason, None),
        (None, lambda reason: "late", "late"),
        ("no", lambda reason: reason, "no"),
        ("no", lambda reason: None, "no"),
        ("no", lambda reason: f"{reason}!", "no!"),
        (None, lambda reason: 1 / 0, "a check failed"),
        (None, lambda reason: 7, "a check failed"),
    ],
)
async def test_a_wrapper_may_add_a_refusal_and_never_lift_one(
    inner: str | None, answer: Callable[[Any], Any], reason: str | None
) -> None:
    wrapping = Wrapping(answer)
    async with FunctionRegistry({"echo": Echo(), "refusing": Refusing(inner), "wrapping": wrapping}) as registry:
        shown = "tin" if reason is None else f'tool "echo" is not allowed: hook: {reason}'
        assert await outputs(registry, "tin") == [shown]
    assert wrapping.got == [inner]


@pytest.mark.requirement("C-12-wrappers")
async def test_a_wrapper_that_yields_never_or_twice_is_a_failed_check_and_one_of_a_cancelled_call_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = asyncio.Event()

    class Never:
        @hookimpl(wrapper=True)
        def before_call(self, call: ToolCall) -> Generator[None, Any, Any]:
            if call.arguments["word"] != "never":
                yield
            if call.arguments["word"] == "twice":
                yield

    class Waiting:
        @hookimpl(wrapper=True)
        def before_call(self) -> Generator[None, Any, Any]:
            try:
                return (yield)
            finally:
                closed.set()

        @hookimpl(specname="before_call")
        async def hang(self, call: ToolCall) -> None:
            if call.arguments["word"] == "hang":
                await asyncio.Event().wait()

    async with FunctionRegistry({"echo": Echo(), "never": Never(), "waiting": Waiting()}) as registry:
        refused = 'tool "echo" is not allowed: hook: a check failed'
        assert await outputs(registry, "never", "twice", "once") == [refused, refused, "once"]
        closed.clear()
        call = asyncio.create_task(outputs(registry, "hang"))
        await asyncio.sleep(0)
        call.cancel()
        await closed.wait()
    told = [re.search(r"(did not yield|yielded twice)", record.getMessage()) for record in caplog.records]
    assert [found[0] for found in told if found] == ["did not yield", "yielded twice"]


class Changing:
    """A `change_result` that returns, or raises, what it was made with."""

    def __init__(self, given: object) -> None:
        self.given = given
        self.saw: list[tuple[str, object]] = []

    @hookimpl
    def change_result(self, result: ToolResult) -> Any:
        self.saw.append((str(result.status), result.output))
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given(result) if callable(self.given) else self.given


WITHHELD = (ToolStatus.TOOL_ERROR, 'result of tool "facts" is withheld: a check failed', None)


@pytest.mark.requirement("C-12-change-result", "C-2-on-failure")
@pytest.mark.parametrize(
    ("given", "seen", "failure"),
    [
        (None, (ToolStatus.SUCCESS, '{"legs":8}', {"legs": 8}), None),
        ("eight", (ToolStatus.SUCCESS, "eight", None), None),
        (ToolResult(structured={"legs": 4}), (ToolStatus.SUCCESS, '{"legs":4}', {"legs": 4}), None),
        (
            ToolResult(output="no legs", status=ToolStatus.TOOL_ERROR),
            (ToolStatus.TOOL_ERROR, "no legs", None),
            None,
        ),
        (ToolResult(structured=float("nan")), WITHHELD, "returned a result that is not JSON"),
        (ToolResult(status=ToolStatus.DENIED), WITHHELD, "returned the status 'denied'"),
        (42, WITHHELD, "returned int, neither a ToolResult nor a text nor None"),
        (SystemExit("secret"), WITHHELD, "raised SystemExit"),
    ],
)
async def test_a_plugin_replaces_results_and_one_that_fails_withholds_them(
    given: object, seen: tuple[object, ...], failure: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with FunctionRegistry({"echo": Echo(), "changing": Changing(given)}) as registry:
        result = await registry.execute(ToolCall("c1", "facts"))
    assert (result.status, result.output, result.structured) == seen
    assert (result.call_id, result.name) == ("c1", "facts")
    logged = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert (failure or "") in logged
    assert bool(logged) is (failure is not None)
    assert "secret" not in logged


@pytest.mark.requirement("C-12-change-result")
async def test_each_plugin_gets_the_result_so_far_of_what_tools_answered_and_of_nothing_else() -> None:
    one, two = Changing(lambda result: f"<{result.output}>"), Changing(lambda result: f"[{result.output}]")
    async with FunctionRegistry({"echo": Echo(), "one": one, "two": two}) as registry:
        assert await outputs(registry, "tin", "error") == ["[<tin>]", "[<bad word>]"]
        refused = [ToolCall("1", "echo", {"word": 1}), ToolCall("2", "nobody")]
        assert [str((await registry.execute(call)).status) for call in refused] == ["invalid_arguments", "unknown_tool"]
    assert two.saw == [("success", "<tin>"), ("tool_error", "<bad word>")]


@pytest.mark.requirement("C-12-wrappers", "C-12-change-result")
async def test_a_wrapper_around_results_gets_what_the_others_made_and_cannot_return_what_was_withheld() -> None:
    class Around:
        @hookimpl(wrapper=True)
        def change_result(self, result: ToolResult) -> Generator[None, ToolResult, Any]:
            changed = yield
            return f"{changed.output}?" if changed.output.endswith("!") else result

    louder = Changing(lambda result: f"{result.output}!" if result.output == "tin" else 1 / 0)
    async with FunctionRegistry({"echo": Echo(), "around": Around(), "louder": louder}) as registry:
        assert await outputs(registry, "tin", "gold") == [
            "tin!?",
            'result of tool "echo" is withheld: a check failed',
        ]


class Noting:
    def __init__(self) -> None:
        self.calls: list[tuple[str, ToolCall, str]] = []

    @hookimpl
    def before_call(self, call: ToolCall) -> None:
        self.calls.append(("before", call, ""))

    @hookimpl
    async def after_call(self, result: ToolResult, call: ToolCall) -> None:
        self.calls.append(("after", call, str(result.status)))


@pytest.mark.requirement("C-12-after-call")
async def test_every_answer_is_noted_also_of_refused_and_unknown_calls() -> None:
    noting = Noting()
    calls = [ToolCall("1", "echo", {"word": "tin"}), ToolCall("2", "echo", {}), ToolCall("3", "nobody")]
    async with FunctionRegistry({"echo": Echo(), "noting": noting}) as registry:
        for call in calls:
            await registry.execute(call)
    assert [(what, call.id, status) for what, call, status in noting.calls] == [
        ("before", "1", ""),
        ("after", "1", "success"),
        ("after", "2", "invalid_arguments"),
        ("after", "3", "unknown_tool"),
    ]
    assert noting.calls[0][1] is noting.calls[1][1]


@pytest.mark.requirement("C-12-after-call", "C-3-deadline-from-entry")
async def test_a_slow_note_is_awaited_until_the_deadline_and_then_goes_on_by_itself() -> None:
    gate, noted = asyncio.Event(), asyncio.Event()

    class Slow:
        @hookimpl
        async def after_call(self) -> None:
            await gate.wait()
            noted.set()

    async with FunctionRegistry({"echo": Echo(), "slow": Slow()}) as registry:
        soon = CallContext(deadline=asyncio.get_running_loop().time() + 0.15)
        result = await registry.execute(ToolCall("1", "echo", {"word": "tin"}), soon)
        assert (result.output, noted.is_set()) == ("tin", False)
        gate.set()
        await noted.wait()


@pytest.mark.requirement("C-12-monitoring")
async def test_monitoring_of_the_manager_sees_what_is_asked_around_a_call() -> None:
    seen: list[object] = []
    async with FunctionRegistry({"echo": Echo(), "changing": Changing("eight"), "noting": Noting()}) as registry:
        undo = registry.plugins.add_hookcall_monitoring(
            lambda name, implementations, given: seen.append((name, [item.plugin_name for item in implementations])),
            lambda outcome, name, implementations, given: seen.append((name, outcome.get_result())),
        )
        await outputs(registry, "tin")
        undo()
        await outputs(registry, "tin")
    changed = ToolResult("c1", "echo", "eight")
    assert seen == [
        ("before_call", ["noting"]),
        ("before_call", None),
        ("change_result", ["changing"]),
        ("change_result", changed),
        ("after_call", ["noting"]),
        ("after_call", None),
    ]


@pytest.mark.requirement("C-12-monitoring")
async def test_a_blocked_plugin_does_not_run_and_the_host_alone_adds_and_removes_plugins(
    package: Package, config: Callable[[str], Path]
) -> None:
    package("toolplug-gold", {"gold": "gold_mod", "echo": "echo_mod:Echo"}, gold_mod=GUARD, echo_mod=ECHO)
    host = open_host(config("providers: {echo: {enabled: true}, gold: {enabled: true}}"), environ={})
    host.plugins.set_blocked("gold")
    async with host:
        record = host.records()[1]
        assert (record.state, record.reason) == (ProviderState.DISABLED, "host.plugins.set_blocked('gold') blocks it")
        assert await outputs(host.registry, "gold") == ["gold"]
        with pytest.raises(RuntimeError, match=r"open_host\(config, providers=…\)"):
            host.plugins.register(ModuleType("late"), "late")
        with pytest.raises(RuntimeError, match=r"host\.disable"):
            host.plugins.set_blocked("echo")
    assert host.plugins.get_plugins() == set()


@pytest.mark.requirement("C-12-module-plugin")
async def test_hooks_from_code_stand_beside_those_of_the_file(package: Package, config: Callable[[str], Path]) -> None:
    package("toolplug-echo", {"echo": "echo_mod:Echo"}, echo_mod=ECHO)
    module = ModuleType("louder")
    exec(
        "from toolplug import hookimpl\n@hookimpl\ndef change_result(result):\n    return result.output + '!'",
        vars(module),
    )
    host = open_host(config("providers: {echo: {enabled: true}}"), environ={}, providers=[module])
    async with host:
        assert await outputs(host.registry, "tin") == ["tin!"]
        assert host.plugins.get_plugin("louder") is module
