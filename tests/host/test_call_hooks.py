"""The host-wide hooks of provider packages: every one has its turn, and a broken one costs nobody a call."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from tests.host.conftest import Package

from toolplug import (
    CallContext,
    FunctionProvider,
    FunctionRegistry,
    Principal,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolStatus,
    ToolUnavailable,
    open_host,
    tool,
)
from toolplug.catalog.call import current_tenant

pytestmark = pytest.mark.anyio

HOOKS = """
    from toolplug import FunctionProvider, tool

    class Hearing(FunctionProvider):
        def __init__(self):
            self.heard = []

        def before_call(self, call, context):
            self.heard.append(("before", call.name))

        async def after_call(self, call, context, result):
            self.heard.append(("after", result.output))

    class Broken(FunctionProvider):
        @tool
        async def answer(self) -> int:
            return 42

        def before_call(self, call, context):
            raise SystemExit("not this one")

        async def after_call(self, call, context, result):
            raise ValueError("nor this one")
"""


RAISING = {
    "before": '            raise SystemExit("not this one")',
    "after": '            raise ValueError("nor this one")',
}


@pytest.mark.requirement("H-fact-hook-raises", "C-12-after-call", "C-2-on-failure")
async def test_a_hook_that_raises_and_may_fail_leaves_the_others_their_turn_and_the_call_its_result(
    package: Package, config: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    points = {"hearing": "hooks_mod:Hearing", "broken": "hooks_mod:Broken"}
    package("toolplug-hooks", points, hooks_mod=HOOKS)
    path = config(
        """
        providers:
          first: {enabled: true, type: hearing}
          broken: {enabled: true, on_failure: allow}
          last: {enabled: true, type: hearing}
        """
    )
    async with open_host(path, environ={}) as host:
        result = await host.registry.execute(ToolCall("1", "answer"), CallContext())
        assert (result.status, result.output) == (ToolStatus.SUCCESS, "42")
        running: dict[str, Any] = {key: item.provider for key, item in host.registry.running().items()}
        heard = [("before", "answer"), ("after", "42")]
        assert (running["first"].heard, running["last"].heard) == (heard, heard)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    lines = {name: 1 + HOOKS.splitlines().index(text) for name, text in RAISING.items()}
    assert [re.sub(r"/\S*/", "", message) for message in errors] == [
        "hook before_call of provider 'broken' (toolplug-hooks 1.0) raised SystemExit at "
        f"hooks_mod.py:{lines['before']} in Broken.before_call (call 1); the call goes on (on_failure: allow)",
        "hook after_call of provider 'broken' (toolplug-hooks 1.0) raised ValueError at "
        f"hooks_mod.py:{lines['after']} in Broken.after_call (call 1); the call keeps its result",
    ]


@pytest.mark.requirement("C-12-after-call")
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_what_fails_at_every_call_is_logged_once_and_then_counted(
    package: Package, config: Callable[[str], Path], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    code = f"""
        from toolplug import hookimpl, tool

        @tool
        async def answer() -> int:
            return 42

        @hookimpl
        {kind} before_call(call):
            raise ValueError("of the check")

        @hookimpl
        {kind} after_call(call):
            raise (KeyError if call.id == "7" else ValueError)("of the notes")

        class Tracer:
            def start(self, call, context, tool):
                raise ValueError("of the span")

        @hookimpl
        def call_tracers():
            return [Tracer()]
    """
    package("toolplug-hooks", {"failing": "hooks_mod"}, hooks_mod=code)
    async with open_host(config("providers: {failing: {enabled: true, on_failure: allow}}"), environ={}) as host:
        for count in range(1, 13):
            result = await host.registry.execute(ToolCall(str(count), "answer"), CallContext())
            assert result.output == "42"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    for hook, calls in (("before_call", "1 10"), ("after_call", "1 7 11"), ("call_tracers", "1 10")):
        found = [line for line in lines if line.startswith(f"hook {hook} ")]
        assert [re.findall(r"\(call (\d+)\)", line) for line in found] == [[call] for call in calls.split()]
        assert found[-1].endswith("; this has happened 10 times, and is logged again at 100")


async def test_each_call_that_a_failing_check_refuses_has_its_line(
    package: Package, config: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    points = {"broken": "hooks_mod:Broken"}
    package("toolplug-hooks", points, hooks_mod=HOOKS)
    async with open_host(config("providers: {broken: {enabled: true}}"), environ={}) as host:
        for count in range(3):
            result = await host.registry.execute(ToolCall(str(count), "answer"), CallContext())
            assert result.status is ToolStatus.DENIED
    lines = [line for record in caplog.records if (line := record.getMessage()).startswith("hook before_call")]
    assert [line.endswith("; the call is denied (on_failure: deny)") for line in lines] == [True] * 3


async def test_a_check_that_is_out_of_reach_is_one_warning_with_the_way_to_have_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Away(FunctionProvider):
        async def before_call(self, call: ToolCall, context: CallContext) -> None:
            raise ToolUnavailable("waits for a worker: toolplug worker away --host URL", code="no_worker")

    async with FunctionRegistry({"tools": Answering(), "away": Away()}) as registry:
        for count in range(1, 13):
            result = await registry.execute(ToolCall(str(count), "answer"), CallContext())
            assert result.status is ToolStatus.DENIED
    line = (
        "hook before_call of provider 'away' is out of reach: waits for a worker: toolplug worker away --host URL; "
        "the call is denied (on_failure: deny)"
    )
    assert [(record.levelno, record.getMessage(), record.exc_info) for record in caplog.records] == [
        (logging.WARNING, line, None),
        (logging.WARNING, f"{line}; this has happened 10 times, and is logged again at 100", None),
    ]


class Answering(FunctionProvider):
    def __init__(self) -> None:
        self.answered = 0

    @tool
    async def answer(self) -> int:
        self.answered += 1
        return 42


class Guard(FunctionProvider):
    """Its `before_call` gives what it was made with."""

    def __init__(self, given: object = None) -> None:
        self.given = given
        self.asked = 0

    async def before_call(self, call: ToolCall, context: CallContext) -> Any:
        self.asked += 1
        if isinstance(self.given, asyncio.Event):
            await self.given.wait()
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given


@pytest.mark.requirement("C-12-before-call", "C-2-on-failure")
@pytest.mark.parametrize(
    ("given", "reason", "failure"),
    [
        (None, None, None),
        ("not today", "not today", None),
        ("", "", None),
        (False, "a check failed", "returned bool, neither a text nor None"),
        (True, "a check failed", "returned bool, neither a text nor None"),
        (0, "a check failed", "returned int, neither a text nor None"),
        (ValueError("secret"), "a check failed", "raised ValueError"),
        (asyncio.CancelledError(), "a check failed", "raised CancelledError"),
        (SystemExit(3), "a check failed", "raised SystemExit"),
    ],
)
async def test_only_none_passes_a_text_refuses_and_anything_else_is_a_failure_that_refuses(
    given: object, reason: str | None, failure: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    tools, last = Answering(), Guard()
    async with FunctionRegistry({"tools": tools, "guard": Guard(given), "last": last}) as registry:
        result = await registry.execute(ToolCall("1", "answer"), CallContext())
    if reason is None:
        assert (result.output, tools.answered, last.asked) == ("42", 1, 1)
    else:
        text = f'tool "answer" is not allowed: hook: {reason}'
        assert (result.status, result.output) == (ToolStatus.DENIED, text)
        assert (tools.answered, last.asked) == (0, 0), "later plugins are not asked after a veto"
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    shown = [re.sub(r" at \S+ in .*\(call 1\)", "", message) for message in logged]
    expected = f"hook before_call of provider 'guard' {failure}; the call is denied (on_failure: deny)"
    assert shown == ([] if failure is None else [expected])


@pytest.mark.requirement("C-12-before-call", "C-3-deadline-from-entry")
async def test_a_hook_never_delays_the_answer_past_the_deadline() -> None:
    tools = Answering()
    async with FunctionRegistry({"tools": tools, "guard": Guard(asyncio.Event())}) as registry:
        soon = CallContext(deadline=asyncio.get_running_loop().time() + 0.02)
        async with asyncio.timeout(30):
            result = await registry.execute(ToolCall("1", "answer"), soon)
    assert (result.status, tools.answered) == (ToolStatus.TIMEOUT, 0)


LATE = """
    import asyncio

    from toolplug import FunctionProvider, tool

    class Slow(FunctionProvider):
        gate = asyncio.Event()
        entered = asyncio.Event()

        @tool
        async def wait(self) -> str:
            self.entered.set()
            await self.gate.wait()
            return "late"

    class Hearing(FunctionProvider):
        told = []

        async def after_call(self, call, context, result):
            await asyncio.sleep(0)
            self.told.append(result.output)

        async def aclose(self):
            self.told.append("closed")

    class Opener(FunctionProvider):
        async def aclose(self):
            Slow.gate.set()
"""


@pytest.mark.requirement("C-12-after-call", "C-3-aclose-once")
@pytest.mark.parametrize("left", ["", "slow: {enabled: true}"])
async def test_a_provider_that_hears_calls_is_closed_after_those_that_run(
    package: Package, config: Callable[[str], Path], left: str
) -> None:
    points = {name.lower(): f"late_mod:{name}" for name in ("Slow", "Hearing", "Opener")}
    package("toolplug-late", points, late_mod=LATE)
    every = "providers: {hearing: {enabled: true}, opener: {enabled: true}, slow: {enabled: true}}"
    async with open_host(config(every), environ={}) as host:
        running: dict[str, Any] = {key: item.provider for key, item in host.registry.running().items()}
        call = asyncio.create_task(host.registry.execute(ToolCall("1", "wait"), CallContext()))
        await running["slow"].entered.wait()
        config(f"providers: {{{left}}}")
        await host.reload(by=Principal())
        assert (await call).output == "late"
    assert running["hearing"].told == ["late", "closed"]


TOOL = """
    from toolplug import hookimpl, tool

    seen = []

    @tool
    async def answer() -> int:
        "Answer."
        return 42

    @hookimpl
    def before_call(tool):
        seen.append(("before", tool.name, tool.ref.source))

    @hookimpl
    async def change_result(tool, result):
        seen.append(("change", tool.name, result.output))

    @hookimpl
    def after_call(result, tool, call):
        seen.append(("after", None if tool is None else tool.name, call.name))
"""


@pytest.mark.requirement("C-12-hook-tool")
async def test_a_hook_may_take_the_definition_of_the_tool_as_its_caller_sees_it(
    package: Package, config: Callable[[str], Path]
) -> None:
    package("toolplug-seen", {"seen": "seen_mod"}, seen_mod=TOOL)
    path = config(
        """
        providers: {seen: {enabled: true}}
        toolsets: {work: {prefix: w, from: "provider:seen"}}
        agents: {bot: {toolsets: [work]}}
        """
    )
    async with open_host(path, environ={}) as host:
        executor = host.executor_for(Principal(scopes=frozenset({"admin"})), agent="bot")
        assert (await executor.execute(ToolCall("1", "w.answer"))).output == "42"
        assert (await executor.execute(ToolCall("2", "nosuch"))).status == "unknown_tool"
    assert sys.modules["seen_mod"].seen == [
        ("before", "w.answer", "seen"),
        ("change", "w.answer", "42"),
        ("after", "w.answer", "answer"),
        ("after", None, "nosuch"),
    ]


class Waiting(FunctionProvider):
    @tool
    async def wait(self) -> str:
        await asyncio.sleep(WAIT_S)
        return "waited"

    @tool
    def refused(self) -> str:
        return "never"

    def before_call(self, call: ToolCall) -> str | None:
        return "not today" if call.name == "refused" else None


class Timing(FunctionProvider):
    """Notes how long calls took."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}

    def after_call(self, call: ToolCall, duration_s: float) -> None:
        self.took[call.name] = duration_s


class TimingLater(Timing):
    """Has a hook that can be awaited, in the place of the plain function."""

    async def after_call(self, call: ToolCall, duration_s: float) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.took[call.name] = duration_s


WAIT_S = 0.02


@pytest.mark.requirement("C-12-after-call-duration")
@pytest.mark.parametrize("kind", [Timing, TimingLater])
async def test_a_note_of_an_answer_has_the_seconds_that_the_call_took(kind: type[Timing]) -> None:
    timing = kind()
    async with FunctionRegistry({"waiting": Waiting(), "timing": timing}) as registry:
        for name in ("wait", "refused", "nosuch"):
            await registry.execute(ToolCall("1", name), CallContext())
    assert timing.took["wait"] >= WAIT_S
    assert 0.0 < timing.took["refused"] != timing.took["wait"]
    assert timing.took["nosuch"] == 0.0


class Mistaken(FunctionProvider):
    """Returns a coroutine from a plain function."""

    def after_call(self, result: ToolResult) -> object:
        return asyncio.sleep(0)


@pytest.mark.requirement("C-12-after-call", "H-plugin-isolation")
@pytest.mark.parametrize("other", [None, TimingLater])
async def test_a_plain_function_that_returns_an_awaitable_is_a_failure_with_the_fix(
    other: type[Timing] | None, caplog: pytest.LogCaptureFixture
) -> None:
    last = Timing()
    plugins = {"mistaken": Mistaken(), **({} if other is None else {"other": other()}), "last": last}
    async with FunctionRegistry({"tools": Answering(), **plugins}) as registry:
        result = await registry.execute(ToolCall("1", "answer"), CallContext())
    assert (result.output, [*last.took]) == ("42", ["answer"])
    [error] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert error == (
        "hook after_call of provider 'mistaken' returned a coroutine that nobody awaits; write it as `async def`; "
        "the call keeps its result"
    )


MARK: ContextVar[str] = ContextVar("mark_of_hooks", default="nobody")


class Marking(FunctionProvider):
    """Notes the mark and the tenant that it finds after a call, and sets the mark."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def after_call(self, result: ToolResult) -> None:
        self.found.append((MARK.get(), current_tenant()))
        MARK.set(self.key)


@pytest.mark.requirement("C-12-after-call", "H-plugin-isolation")
async def test_a_hook_sees_the_context_of_the_caller_and_what_it_sets_there_reaches_nobody() -> None:
    first, last = Marking(), Marking()
    context = CallContext(principal=Principal("ada", tenant="acme"))
    async with FunctionRegistry({"tools": Answering(), "first": first, "last": last}) as registry:
        before = MARK.set("caller")
        for _ in range(2):
            await registry.execute(ToolCall("1", "answer"), context)
            assert (MARK.get(), current_tenant()) == ("caller", "default")
        MARK.reset(before)
    assert first.found == last.found == [("caller", "acme")] * 2


class Changing(FunctionProvider):
    """Tries to change the arguments of each call."""

    def after_call(self, call: ToolCall) -> None:
        call.arguments["added"] = 1  # type: ignore[index]


class Taking(FunctionProvider):
    """Has a tool with arguments."""

    @tool
    def take(self, text: str, words: list[str]) -> str:
        return text


@pytest.mark.requirement("C-12-after-call")
@pytest.mark.parametrize("others", [(), (Timing,), (Marking, Marking)])
async def test_arguments_are_read_only_for_a_hook_that_takes_the_call_whatever_the_others_take(
    others: tuple[type[FunctionProvider], ...], caplog: pytest.LogCaptureFixture
) -> None:
    given = {"text": "x", "words": ["a"]}
    plugins = {f"other{number}": kind() for number, kind in enumerate(others)}
    async with FunctionRegistry({"tools": Taking(), **plugins, "changing": Changing()}) as registry:
        await registry.execute(ToolCall("1", "take", given), CallContext())
    assert given == {"text": "x", "words": ["a"]}
    [error] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert error.startswith("hook after_call of provider 'changing' raised TypeError at ")


async def test_a_monitor_sees_read_only_arguments_where_no_hook_takes_the_call() -> None:
    seen: list[Any] = []
    async with open_host({"providers": {}}, providers={"taking": Taking(), "marking": Marking()}, environ={}) as host:
        end = host.plugins.add_hookcall_monitoring(
            lambda name, implementations, given: seen.append(given["call"]) if name == "after_call" else None,
            lambda outcome, name, implementations, given: None,
        )
        await host.registry.execute(ToolCall("1", "take", {"text": "x", "words": ["a"]}), CallContext())
        end()
    [call] = seen
    with pytest.raises(TypeError, match="read-only"):
        call.arguments["text"] = "y"
    with pytest.raises(TypeError, match="read-only"):
        call.arguments["words"].append("b")


class Naming(FunctionProvider):
    """Takes arguments of a hook that stand side by side, without the first and the last."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def after_call(self, context: CallContext, result: ToolResult, tool: ToolDefinition | None) -> None:
        self.seen.append((context.request_id, result.output, None if tool is None else tool.name))


async def test_a_hook_may_leave_out_the_first_and_the_last_arguments() -> None:
    naming = Naming()
    async with FunctionRegistry({"tools": Answering(), "naming": naming}) as registry:
        await registry.execute(ToolCall("1", "answer"), CallContext(request_id="r1"))
    assert naming.seen == [("r1", "42", "answer")]
