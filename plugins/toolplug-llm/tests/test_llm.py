"""Tools of plugins of `llm`: functions and toolboxes, what they answer, and what a broken one costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from toolplug import CallContext, Principal, ToolCall, ToolResult, open_host
from toolplug.errors import ConfigError
from toolplug.testing.provider_check import check_provider, running
from toolplug_llm import provider
from toolplug_llm.provider import LlmPlugin

README = Path(__file__).parents[1] / "README.md"

pytestmark = [pytest.mark.anyio, pytest.mark.framework]

Install = Callable[[str, str], str]

BOX = '''
import llm, threading

def _size(self):
    "Say the size."
    return self.size

class Notes(llm.Toolbox):
    def __init__(self, owner: str, size: int = 3):
        self.owner, self.size, self.lines, self.thread = owner, size, [], threading.get_ident()

    def prepare(self):
        self.add_tool(_size, pass_self=True)

    def add(self, text: str):
        """Add a line.

        And say how many there are.
        """
        self.lines.append(text)
        return {"owner": self.owner, "lines": self.lines, "same": threading.get_ident() == self.thread}

class Clock(llm.Toolbox):
    def now(self):
        "Say the thread."
        return threading.get_ident()

def shout(text: str) -> str:
    "Write in capitals."
    return text.upper()

async def wait(seconds: int = 0) -> list:
    "Wait."
    return [seconds, object]

def fail(text: str):
    "Fail."
    raise ValueError(text)

def paint() -> llm.ToolOutput:
    "Paint."
    picture = llm.Attachment(type="image/png", content=b"png")
    return llm.ToolOutput(output={"size": 3}, attachments=[picture, llm.Attachment(url="https://e.example/p.png")])

@llm.hookimpl
def register_tools(register):
    register(Notes)
    register(Clock)
    register(shout)
    register(wait, name="wait_for")
    register(fail)
    register(paint)
'''

CLOCK = """
import llm

class Clock(llm.Toolbox):
    def now(self):
        "Say the time."
        return "12:00"

def noon() -> str:
    "Say when noon is."
    return "12:00"

@llm.hookimpl
def register_tools(register):
    register(Clock)
    register(noon)
"""

AWAY = """
import llm, os

class Notes(llm.Toolbox):
    def __init__(self):
        self.lines = []

    def add(self, text: str) -> str:
        "Add a line; say the process and all lines."
        self.lines.append(text)
        return " ".join([str(os.getpid()), *self.lines])

def fail(text: str):
    "Fail."
    raise ValueError(text)

@llm.hookimpl
def register_tools(register):
    register(Notes)
    register(fail)
"""


def caller(tenant: str) -> CallContext:
    return CallContext(principal=Principal(subject="ada", tenant=tenant, scopes=frozenset({"tools:call"})))


async def results(plugin: str, *calls: tuple[str, Mapping[str, object]], **arguments: object) -> list[ToolResult]:
    settings = {"plugin": plugin, "arguments": arguments}
    async with running(LlmPlugin, settings) as registry:
        return [await registry.execute(ToolCall("1", name, given), CallContext()) for name, given in calls]


@pytest.mark.requirement("I39-llm", "I2-9-all-use-it")
async def test_an_adapter_keeps_every_rule_of_a_provider(install: Install) -> None:
    plugin = install("llm-tools-clock", CLOCK)
    await check_provider(LlmPlugin, settings={"plugin": plugin}, calls={"Clock_now": {}, "noon": {}}, readme=README)


@pytest.mark.requirement("I39-llm")
async def test_functions_and_toolboxes_are_listed_as_llm_describes_them(install: Install) -> None:
    plugin = install("llm-tools-box", BOX)
    async with running(LlmPlugin, {"plugin": plugin, "arguments": {"owner": "ada"}}) as registry:
        tools = {name: registry.catalog[name].definition for name in registry.catalog}
    assert list(tools) == ["shout", "wait_for", "fail", "paint", "Notes_add", "_size", "Clock_now"]
    assert tools["Notes_add"].description == "Add a line.\n\nAnd say how many there are."
    assert tools["shout"].parameters.value == {
        "additionalProperties": False,
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }


@pytest.mark.requirement("I39-llm")
async def test_a_tool_answers_as_it_does_in_llm(install: Install) -> None:
    plugin = install("llm-tools-box", BOX)
    calls = [("shout", {"text": "hey"}), ("wait_for", {"seconds": 2}), ("fail", {"text": "no such row"}), ("paint", {})]
    shout, wait, fail, paint = await results(plugin, *calls, owner="ada")
    assert (shout.output, wait.output) == ("HEY", "[2, \"<class 'object'>\"]")
    assert (fail.status, fail.output) == ("tool_error", "no such row")
    assert paint.output == '{"size": 3}'
    assert paint.parts == (
        {"type": "image", "data": "cG5n", "mimeType": "image/png"},
        {"type": "text", "text": "https://e.example/p.png"},
    )


@pytest.mark.requirement("I39-llm")
async def test_each_tenant_has_a_toolbox_of_its_own_that_stays_in_its_thread(install: Install) -> None:
    plugin = install("llm-tools-box", BOX)
    async with running(LlmPlugin, {"plugin": plugin, "arguments": {"owner": "ada", "size": 1}}) as registry:

        async def add(text: str, tenant: str) -> object:
            call = ToolCall("1", "Notes_add", {"text": text})
            return (await registry.execute(call, caller(tenant))).output

        assert [await add("a", "one"), await add("b", "two"), await add("c", "one")] == [
            '{"owner": "ada", "lines": ["a"], "same": true}',
            '{"owner": "ada", "lines": ["b"], "same": true}',
            '{"owner": "ada", "lines": ["a", "c"], "same": true}',
        ]
        clock = await registry.execute(ToolCall("1", "Clock_now", {}), caller("one"))
        again = await registry.execute(ToolCall("1", "Clock_now", {}), caller("two"))
        assert clock.output != again.output


@pytest.mark.requirement("I39-llm")
async def test_the_toolboxes_of_the_tenant_that_called_longest_ago_are_dropped(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "MAX_TENANTS", 2)
    plugin = install("llm-tools-box", BOX)
    async with running(LlmPlugin, {"plugin": plugin, "arguments": {"owner": "ada"}}) as registry:
        texts = {}
        for tenant in ("one", "two", "one", "three", "one", "two"):
            call = ToolCall("1", "Notes_add", {"text": tenant})
            texts[tenant] = (await registry.execute(call, caller(tenant))).output
    assert '["one", "one", "one"]' in texts["one"]
    assert '["two"]' in texts["two"]


BROKEN = {
    "import": ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "hook": (
        "import llm\n@llm.hookimpl\ndef register_tools(register):\n    raise RuntimeError('no key')",
        "RuntimeError: no key",
    ),
    "none": ("import llm\n@llm.hookimpl\ndef register_tools(register): pass", "registers no tools"),
}


@pytest.mark.requirement("I39-broken")
@pytest.mark.parametrize("case", BROKEN)
async def test_a_broken_plugin_is_one_row_with_its_fix_and_the_others_serve(install: Install, case: str) -> None:
    code, cause = BROKEN[case]
    entries = {
        "broken": {"enabled": True, "type": "llm", "required": False, "plugin": install(f"llm-tools-{case}", code)},
        "box": {"enabled": True, "type": "llm", "plugin": install("llm-tools-box", BOX), "arguments": {"owner": "ada"}},
    }
    async with open_host({"store": "memory://", "providers": entries}) as host:
        record = {record.key: record for record in host.records()}["broken"]
        assert record.state == "start-failed"
        assert f"llm-tools-{case} 1.0" in record.reason
        assert cause in record.reason
        executor = host.executor_for(caller("one").principal)
        assert (await executor.call("shout", text="a")).output == "A"


WRONG = {
    "not installed": ({"plugin": "llm-tools-nowhere"}, "pip install llm-tools-nowhere"),
    "no plugin of llm": ({"plugin": "pydantic"}, "is no plugin of llm"),
    "argument missing": ({"plugin": "llm-tools-box"}, "needs owner; set arguments: {owner: …}"),
    "argument unknown": (
        {"plugin": "llm-tools-box", "arguments": {"owner": "a", "colour": 1}},
        "takes colour; there are: owner, size",
    ),
}


@pytest.mark.requirement("I39-broken")
@pytest.mark.parametrize("case", WRONG)
async def test_a_wrong_entry_says_what_is_wrong_and_the_fix(install: Install, case: str) -> None:
    install("llm-tools-box", BOX)
    settings, said = WRONG[case]
    with pytest.raises(ConfigError) as caught:
        async with open_host({"store": "memory://", "providers": {"x": {"enabled": True, "type": "llm", **settings}}}):
            raise AssertionError("it must not start")
    assert said in str(caught.value)


@pytest.mark.requirement("I39-adapters-apart")
async def test_a_plugin_runs_in_an_environment_of_its_own_that_the_host_has_not(
    own_environment: Callable[[str, str], Path],
) -> None:
    python = own_environment("llm-tools-away", AWAY)
    entry = {"enabled": True, "type": "llm", "plugin": "llm-tools-away"}
    providers = {
        "away": {**entry, "run": {"process": True, "python": str(python)}},
        "here": {**entry, "required": False},
    }
    async with open_host({"store": "memory://", "providers": providers}) as host:
        executor = host.executor_for(caller("one").principal)
        calls = [await executor.call("Notes_add", text=text) for text in ("a", "b")]
        fail = await executor.call("fail", text="no such row")
        here = next(record for record in host.records() if record.key == "here")
    assert [call.output.partition(" ")[2] for call in calls] == ["a", "a b"]
    assert {call.output.partition(" ")[0] for call in calls}.isdisjoint({str(os.getpid())})
    assert (fail.status, fail.output) == ("tool_error", "no such row")
    assert (here.state, "no package 'llm-tools-away' is installed" in here.reason) == ("start-failed", True)
