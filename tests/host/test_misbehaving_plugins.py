"""A plugin of any shape that raises, hangs, returns nonsense or changes the process: the others go on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path

import pytest
from tests.host.conftest import Package
from tests.virtual_time import VIRTUAL

from toolplug import CallContext, ConfigError, Host, Principal, ToolCall, ToolResult, open_host
from toolplug.providers.entry import ProviderState
from toolplug.providers.lifecycle import CLOSE_S, START_S

pytestmark = pytest.mark.anyio

Config = Callable[[str], Path]

GOOD = """
from toolplug import hookimpl, tool

seen = []

@tool
async def fine(text: str = "") -> str:
    "Answer."
    return f"fine {text}"

@hookimpl
def after_call(call, result):
    seen.append((call.name, str(result.status)))
"""

PARAMETERS = {
    "tools": "",
    "routes": "",
    "collectors": "",
    "call_tracers": "",
    "start": "site",
    "aclose": "",
    "diagnose": "",
    "before_call": "call, context",
    "change_result": "call, context, result",
    "after_call": "call, context, result",
}
ASYNC = ("start", "aclose", "diagnose")
STARTING = ("tools", "routes", "collectors", "start")
AROUND_CALLS = ("before_call", "change_result", "after_call")
SHAPES = ("class", "factory", "module", "object")

RAISES = {
    "raises": "raise ValueError('secret text')",
    "exits": "raise SystemExit(3)",
    "cancels": "raise asyncio.CancelledError",
    "recurses": "return recurse()",
}


def shapes_with(*behaviours: Iterable[object]) -> list[object]:
    """Return every shape with every behaviour. `make test` tries each behaviour with one of the shapes."""
    return [
        pytest.param(shape, *behaviour, marks=() if number % len(SHAPES) == turn else pytest.mark.judge)
        for number, behaviour in enumerate(product(*behaviours))
        for turn, shape in enumerate(SHAPES)
    ]


def plugin(shape: str, hook: str, body: str, *, waits: bool = False) -> str:
    """Return the code of a plugin of this shape, named `plugin`, whose hook does this."""
    first = "async def" if hook in ASYNC or waits else "def"
    parameters = PARAMETERS[hook]
    head = "import asyncio, logging, os, signal, sys\nfrom toolplug import FunctionProvider, hookimpl\n\n"
    head += "def recurse():\n    return recurse()\n\n"
    method = f"{first} {hook}(self{', ' if parameters else ''}{parameters}):\n{textwrap.indent(body, '    ')}\n"
    match shape:
        case "module":
            return f"{head}@hookimpl\n{first} {hook}({parameters}):\n{textwrap.indent(body, '    ')}\n"
        case "object":
            marked = textwrap.indent(f"@hookimpl\n{method}", "    ")
            return f"{head}class Plugin:\n{marked}\n\nplugin = Plugin()\n"
        case "factory":
            made = "def plugin(key, config):\n    return Plugin()\n"
            return f"{head}class Plugin(FunctionProvider):\n{textwrap.indent(method, '    ')}\n\n{made}"
        case _:
            return f"{head}class plugin(FunctionProvider):\n{textwrap.indent(method, '    ')}"


Install = Callable[..., Path]


@pytest.fixture
def install(package: Package, config: Config) -> Install:
    """Install a well-behaved plugin, and one of this shape; return a configuration with the latter first."""

    def installed(shape: str, code: str, settings: str = "required: false", host: str = "") -> Path:
        package("acme-bad", {"bad": "bad_mod" if shape == "module" else "bad_mod:plugin"}, bad_mod=code)
        package("acme-good", {"good": "good_mod"}, good_mod=GOOD)
        return config(f"providers:\n  bad: {{enabled: true, {settings}}}\n  good: {{enabled: true}}\n{host}")

    return installed


async def call(host: Host, name: str = "fine") -> ToolResult:
    return await host.registry.execute(ToolCall("1", name, {"text": "x"}), CallContext())


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def crashes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "toolplug.crashes"]


def seen() -> list[tuple[str, str]]:
    return sys.modules["good_mod"].seen


@pytest.mark.requirement("H-plugin-isolation")
@pytest.mark.parametrize(("shape", "hook", "how"), shapes_with(STARTING, RAISES))
async def test_one_that_fails_to_start_has_a_state_a_reason_and_a_fix_and_the_others_run(
    install: Install, caplog: pytest.LogCaptureFixture, shape: str, hook: str, how: str
) -> None:
    path = install(shape, plugin(shape, hook, RAISES[how]))
    async with open_host(path, environ={}) as host:
        bad, good = host.records()[:2]
        assert (bad.state, good.state) == (ProviderState.START_FAILED, ProviderState.ACTIVE)
        assert hook in bad.reason or "start" in bad.reason
        assert bad.fix
        assert (await call(host)).output == "fine x"
    assert seen() == [("fine", "success")]
    (line,) = crashes(caplog)
    assert line.startswith(f"{hook}() of provider 'bad' (acme-bad 1.0) raised ")


@pytest.mark.requirement("H-plugin-isolation")
@pytest.mark.parametrize(("shape", "how"), shapes_with(RAISES))
async def test_one_that_fails_to_close_is_one_line(
    install: Install, caplog: pytest.LogCaptureFixture, shape: str, how: str
) -> None:
    path = install(shape, plugin(shape, "aclose", RAISES[how]))
    async with open_host(path, environ={}) as host:
        assert (await call(host)).output == "fine x"
    (line,) = errors(caplog)
    assert "provider 'bad' (acme-bad 1.0)" in line
    assert "secret text" not in line


@pytest.mark.requirement("H-plugin-isolation")
@pytest.mark.parametrize(
    ("shape", "hook", "how", "waits"), shapes_with(AROUND_CALLS, (*RAISES, "nonsense"), (False, True))
)
async def test_one_that_fails_around_calls_refuses_them_or_is_passed_over_as_its_entry_says(
    install: Install, caplog: pytest.LogCaptureFixture, shape: str, hook: str, how: str, waits: bool
) -> None:
    body = RAISES.get(how, "return object()")
    path = install(shape, plugin(shape, hook, body, waits=waits), "on_failure: allow")
    async with open_host(path, environ={}) as host:
        assert (await call(host)).output == "fine x"
        assert seen() == [("fine", "success")]
    lines = errors(caplog)
    if (hook, how) == ("after_call", "nonsense"):
        assert lines == []
        return
    (line,) = lines
    assert line.startswith(f"hook {hook} of provider 'bad' (acme-bad 1.0) ")
    assert "secret text" not in line


@pytest.mark.requirement("H-plugin-isolation")
@pytest.mark.parametrize(("shape", "how"), shapes_with((*RAISES, "nonsense")))
async def test_a_check_that_fails_refuses_the_call_and_withholds_the_result_by_default(
    install: Install, shape: str, how: str
) -> None:
    body = RAISES.get(how, "return object()")
    path = install(shape, plugin(shape, "before_call", body))
    async with open_host(path, environ={}) as host:
        refused = await call(host)
        assert (refused.status, refused.output) == (
            "denied",
            'tool "fine" is not allowed: hook: a check failed',
        )
        assert seen() == [("fine", "denied")]


@pytest.mark.parametrize(("shape", "hook"), shapes_with(("before_call", "change_result")))
async def test_one_that_hangs_costs_the_call_its_time_and_no_more(install: Install, shape: str, hook: str) -> None:
    code = plugin(shape, hook, "await asyncio.Event().wait()", waits=True)
    path = install(shape, code, "on_failure: allow", host="limits: {timeout: 0.2}")
    async with open_host(path, environ={}) as host:
        assert (await call(host)).status == ("timeout" if hook == "before_call" else "success")
    assert len(seen()) == 1


CHANGES = {
    "directory": "os.chdir('/')",
    "signals": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "path": "sys.path.insert(0, '/nonexistent'); sys.path.remove('/nonexistent')",
    "logging": "logging.getLogger('toolplug').setLevel(logging.CRITICAL); logging.disable(logging.ERROR)",
    "environment": "os.environ.pop('PATH', None); os.environ['TOOLPLUG_CONFIG'] = '/nonexistent'",
    "umask": "os.umask(0o777)",
    "recursion": "sys.setrecursionlimit(10**6)",
}


@pytest.fixture
def process() -> Iterator[None]:
    """Puts back what a plugin of these tests may change."""
    folder, handler, path, environ = Path.cwd(), signal.getsignal(signal.SIGTERM), [*sys.path], dict(os.environ)
    umask, recursion = os.umask(0o022), sys.getrecursionlimit()
    yield
    os.chdir(folder)
    signal.signal(signal.SIGTERM, handler)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environ)
    os.umask(umask)
    sys.setrecursionlimit(recursion)
    logging.disable(logging.NOTSET)
    logging.getLogger("toolplug").setLevel(logging.NOTSET)


@pytest.mark.requirement("H-plugin-isolation")
@pytest.mark.usefixtures("process")
@pytest.mark.parametrize(("shape", "change"), shapes_with(CHANGES))
async def test_one_that_changes_the_process_keeps_the_host_and_the_others_working(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, change: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = install(shape, plugin(shape, "start", CHANGES[change]), host="store: sqlite:///./state.db")
    async with open_host(path.name, environ=dict(os.environ)) as host:
        assert (await call(host)).output == "fine x"
        await host.reload(by=Principal())
        assert (await call(host)).output == "fine x"
        assert [str(record.state) for record in host.records()[:2]] == ["active", "active"]
    assert (tmp_path / "state.db").exists()


@pytest.mark.requirement("H-plugin-twice")
@pytest.mark.parametrize("shape", SHAPES)
async def test_one_with_two_entries_runs_twice_or_is_refused_with_the_fix(
    package: Package, config: Config, shape: str
) -> None:
    package(
        "acme-bad",
        {"bad": "bad_mod" if shape == "module" else "bad_mod:plugin"},
        bad_mod=plugin(shape, "start", "pass"),
    )
    path = config("providers:\n  one: {type: bad, enabled: true}\n  two: {type: bad, enabled: true}\n")
    if shape in ("class", "factory"):
        async with open_host(path, environ={}) as host:
            assert [str(record.state) for record in host.records()[:2]] == ["active", "active"]
        return
    with pytest.raises(ConfigError) as caught:
        async with open_host(path, environ={}):
            raise AssertionError("it must not start")
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("providers.two", 3)
    assert "'one'" in problem.message
    assert "class" in problem.hint


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("plugin = None", "bad_mod:plugin is no plugin"),
        ("plugin = 42", "bad_mod:plugin is no plugin"),
        ("def plugin(key, config):\n    return None", "bad_mod:plugin gave a NoneType"),
        ("def plugin(key, config):\n    raise SystemExit(3)", "SystemExit"),
        ("class plugin:\n    pass", "is no plugin"),
        ("raise KeyboardInterrupt", "importing bad_mod raised KeyboardInterrupt"),
        ("import sys\nsys.exit(0)", "importing bad_mod raised SystemExit"),
    ],
)
async def test_what_is_no_plugin_is_named_with_its_package(install: Install, code: str, said: str) -> None:
    async with open_host(install("class", code), environ={}) as host:
        bad, good = host.records()[:2]
        assert str(good.state) == "active"
        assert said in bad.reason
        assert bad.fix
        assert (await call(host)).output == "fine x"


@pytest.mark.requirement("H-plugin-isolation")
@pytest.mark.parametrize("anyio_backend", [VIRTUAL])
@pytest.mark.parametrize(("shape", "hook"), shapes_with(("start", "aclose")))
async def test_one_that_hangs_in_its_life_is_given_up_and_the_others_run(
    install: Install, caplog: pytest.LogCaptureFixture, shape: str, hook: str
) -> None:
    path = install(shape, plugin(shape, hook, "await asyncio.Event().wait()"))
    loop = asyncio.get_running_loop()
    async with open_host(path, environ={}) as host:
        bad, good = host.records()[:2]
        assert bad.state == (ProviderState.START_FAILED if hook == "start" else ProviderState.ACTIVE)
        assert good.state == ProviderState.ACTIVE
        assert (await call(host)).output == "fine x"
    assert START_S <= loop.time() < START_S + 1 if hook == "start" else CLOSE_S <= loop.time() < CLOSE_S + 1
    assert any(f"{hook}()" in line and "'bad'" in line for line in [bad.reason, *errors(caplog)])
