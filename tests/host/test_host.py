"""A running host: switching, reloading, draining, and who sees which tools."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from tests.host.conftest import Package

from toolplug import CallContext, FunctionRegistry, Principal, ToolCall, ToolExecutor, ToolResult, open_host
from toolplug.catalog.catalog import CatalogDiff
from toolplug.errors import AgentNotAllowed, AgentRequired, ConfigError, NoSuchProvider, SessionNotFound
from toolplug.execution.run import run as run_plan
from toolplug.host.admin.reload import Reloaded
from toolplug.providers.entry import ProviderState

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("gates")]

GATES = """
    import asyncio
    from pydantic import BaseModel
    from prometheus_client import Counter
    from toolplug import FunctionProvider, tool

    made = []

    class Gate(FunctionProvider):
        class Config(BaseModel):
            label: str = "a"

        def __init__(self):
            made.append(self)
            self.open = asyncio.Event()
            self.entered = asyncio.Event()
            self.closed = 0

        async def aclose(self):
            self.closed += 1

        @tool
        async def wait(self) -> str:
            self.entered.set()
            await self.open.wait()
            return self.config.label

        @tool
        async def label(self) -> str:
            return self.config.label

        @tool(read_only=True, stub="gate")
        async def hinted(self) -> str:
            return "hinted"
"""
ADMIN = Principal(subject="root", scopes=frozenset({"admin", "operator"}))
Write = Callable[[str], Path]


@pytest.fixture
def gates(package: Package) -> None:
    package("toolplug-gates", {"gate": "gates_mod:Gate"}, gates_mod=GATES)


async def run(executor: ToolExecutor, name: str, principal: Principal = ADMIN) -> ToolResult:
    return await executor.execute(ToolCall("c", name), CallContext(principal=principal))


def newest() -> Any:
    """The newest instance of the package's provider."""
    return sys.modules["gates_mod"].made[-1]


@pytest.mark.requirement("REG-edge-disable", "C-3-disable-at-once", "C-3-disable-running", "C-3-aclose-once", "LAW-3")
async def test_disabling_a_provider_lets_running_calls_finish_and_starts_no_new_one(config: Write) -> None:
    async with open_host(config("providers: {gate: {enabled: true}}"), environ={}) as host:
        gate = newest()
        executor = host.executor_for(ADMIN)
        kept = executor.catalog
        running = asyncio.create_task(run(executor, "wait"))
        await gate.entered.wait()
        await host.disable("gate", by=ADMIN)
        assert len(executor.catalog) == 0
        assert host.records()[0].state is ProviderState.DISABLED
        assert (await run(executor, "label")).output == 'no builtin provider handles tool "label"'
        stale = await run_plan(kept["label"].plan, ToolCall("c", "label"), CallContext(principal=ADMIN))
        assert stale.status == "unknown_tool"
        assert gate.closed == 0
        gate.open.set()
        assert (await running).output == "a"
    assert gate.closed == 1


@pytest.mark.requirement("C-2-reload-plan", "C-2-reload-swap", "C-2-reload-removed", "LAW-6", "I2-4-plan-apply")
async def test_a_reload_keeps_what_is_unchanged_and_swaps_the_rest(config: Write) -> None:
    path = config("providers: {gate: {enabled: true}, hello: {enabled: true}, other: {enabled: true, type: gate}}")
    async with open_host(path, environ={}) as host:
        old = newest()
        await run(host.registry, "label")
        before = host.registry.catalog["hello"]
        heard: list[CatalogDiff] = []
        host.registry.subscribe(heard.append)
        config("providers: {gate: {enabled: true, label: b}, hello: {enabled: true}}")
        done = await host.reload(by=ADMIN)
        assert done == Reloaded(started=("gate",), kept=("hello",), stopped=("other",))
        assert host.registry.catalog["hello"] is before
        assert (await run(host.registry, "label")).output == "b"
        labels = {"provider": "gate", "tool_name": "label", "status": "success"}
        assert host.metrics.get_sample_value("antwort_builtin_tool_executions_total", labels) == 2
        assert newest() is not old
        assert heard == []


@pytest.mark.requirement("C-3-conflict-heir", "C-3-disable-at-once")
async def test_when_the_winner_of_a_name_goes_its_heir_is_one_modified_and_no_more(config: Write) -> None:
    path = config("providers: {gate: {enabled: true}, heir: {enabled: true, type: gate, label: b}}")
    async with open_host(path, environ={}) as host:
        heard: list[CatalogDiff] = []
        host.registry.subscribe(heard.append)
        assert (await run(host.registry, "label")).output == "a"
        await host.disable("gate", by=ADMIN)
        assert (await run(host.registry, "label")).output == "b"
        await host.enable("gate", by=ADMIN)
        assert (await run(host.registry, "label")).output == "a"
    went, came, _ = [(diff.added, diff.removed, diff.modified) for diff in heard]
    assert went == came == ((), (), ("wait", "label", "hinted"))


@pytest.mark.requirement("C-2-reload-bad")
async def test_a_bad_file_changes_nothing_and_says_why(config: Write) -> None:
    path = config("providers: {gate: {enabled: true}}")
    async with open_host(path, environ={}) as host:
        before = host.registry.catalog
        config("providers: {gate: {enabled: true, lable: b}, nope: {}}")
        with pytest.raises(ConfigError) as caught:
            await host.reload(by=ADMIN)
        assert [problem.path for problem in caught.value.problems] == ["providers.gate.lable", "providers.nope"]
        config("store: sqlite:///./other.db")
        with pytest.raises(ConfigError, match="cannot change while the host runs"):
            await host.reload(by=ADMIN)
        assert host.registry.catalog is before


@pytest.mark.requirement("C-3-switch-lasts", "C-5-enable-invalid", "C-5-enable-unknown")
async def test_a_switch_lasts_until_the_next_reload(config: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolplug.audit")
    path = config("providers: {gate: {enabled: false, label: off}, hello: {enabled: false, greeting: 5}}")
    async with open_host(path, environ={}) as host:
        await host.enable("gate", by=ADMIN, request_id="r1")
        assert (await run(host.registry, "label")).output == "off"
        with pytest.raises(ConfigError, match=r"providers\.hello\.greeting: should be text"):
            await host.enable("hello", by=ADMIN)
        with pytest.raises(NoSuchProvider, match="nearest: 'gate'"):
            await host.enable("gat", by=ADMIN)
        await host.reload(by=ADMIN)
        assert len(host.registry.catalog) == 0
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "toolplug.audit"]
    told = [(line["event"], line["outcome"], line["principal"], line["target"], line["request_id"]) for line in lines]
    assert told == [
        ("provider.enable", "done", "root", "gate", "r1"),
        ("provider.enable", "refused", "root", "hello", ""),
        ("provider.enable", "refused", "root", "gat", ""),
        ("config.reload", "done", "root", str(path), ""),
    ]


@pytest.mark.requirement("C-5-agent-unknown", "C-5-agent-implied", "C-5-agent-required", "C-5-agent-not-allowed")
@pytest.mark.requirement("C-12-host")
async def test_whose_catalog_follows_from_agent_session_and_credential(config: Write) -> None:
    one = Principal(scopes=ADMIN.scopes, agents=frozenset({"a"}))
    two = Principal(scopes=ADMIN.scopes, agents=frozenset({"a", "b"}))
    async with open_host(config("providers: {gate: {enabled: true}}"), environ={}) as host:
        assert list(host.executor_for(ADMIN).catalog) == ["wait", "label", "hinted"]
        assert list(host.executor_for(ADMIN, agent="nobody").catalog) == []
        assert list(host.executor_for(one).catalog) == []
        with pytest.raises(AgentRequired):
            host.executor_for(two)
        with pytest.raises(AgentNotAllowed):
            host.executor_for(two, agent="c")
        with pytest.raises(SessionNotFound):
            host.executor_for(ADMIN, session="ABCDEFGH")
        refused = await run(host.executor_for(Principal()), "label", Principal())
        assert refused.output == "tool \"label\" is not allowed: scope: the scope 'tools:call' is missing"


@pytest.mark.requirement("C-3-artifacts-kept", "C-3-read-result", "C-3-read-result-last", "C-3-artifacts-off")
async def test_a_long_result_is_kept_whole_where_artifacts_are_on(config: Write) -> None:
    text = "providers: {hello: {enabled: true}}\nlimits: {artifacts: true, max_result_bytes: 10}"
    async with open_host(config(text), environ={}) as host:
        executor = host.executor_for(ADMIN)
        assert list(executor.catalog) == ["hello", "read_result"]
        said = await executor.execute(ToolCall("1", "hello", {"name": "everybody"}), CallContext(principal=ADMIN))
        handle = said.metadata["truncated"]["handle"]
        whole = await executor.execute(ToolCall("2", "read_result", {"handle": handle}), CallContext(principal=ADMIN))
        assert (said.output[:10], whole.output) == ("Hello, eve", "Hello, everybody!")
    async with open_host(config("providers: {hello: {enabled: true}}"), environ={}) as host:
        assert list(host.registry.catalog) == ["hello"]


@pytest.mark.requirement("C-12-open-host-settings", "C-2-expand-unquoted")
@pytest.mark.parametrize(("word", "active"), [("true", True), ("false", False)])
async def test_a_reference_in_a_mapping_means_what_it_means_unquoted_in_a_file(word: str, active: bool) -> None:
    settings = {
        "store": "memory://",
        "providers": {"hello": {"enabled": "${ON}"}},
        "sessions": {"max_sessions": "${N}"},
    }
    async with open_host(settings, environ={"ON": word, "N": "5"}) as host:
        assert ("hello" in host.registry.catalog, host.settings.sessions.max_sessions) == (active, 5)


@pytest.mark.requirement("C-3-artifact-ttl")
async def test_a_long_result_is_kept_for_as_long_as_a_session_lives(config: Write) -> None:
    text = "providers: {hello: {enabled: true}}\nlimits: {artifacts: true, max_result_bytes: 10}"
    async with open_host(config(text)) as host:
        config(f"{text}\nsessions: {{ttl: 5m}}")
        await host.reload(by=ADMIN)
        before = host.store.now()
        call = ToolCall("1", "hello", {"name": "everybody"})
        await host.executor_for(ADMIN).execute(call, CallContext(principal=ADMIN))
        (key,) = await host.store.keys("artifact/")
        record = await host.store.read(key)
        assert record is not None
        assert record.expires_at is not None
        assert 300 <= record.expires_at - before < 360


@pytest.mark.requirement("C-3-artifacts-kept", "C-3-read-result-last", "C-3-artifacts-off")
@pytest.mark.parametrize("where", ["limits: {artifacts: true}", "tools: {hello: {limits: {artifacts: true}}}"])
async def test_kept_results_can_be_read_wherever_artifacts_were_switched_on(config: Write, where: str) -> None:
    path = config("providers: {hello: {enabled: true}}")
    async with open_host(path, environ={}) as host:
        assert list(host.registry.catalog) == ["hello"]
        assert b"read_result" not in generate_latest(host.metrics)
        config(f"providers: {{hello: {{enabled: true, {where}}}}}")
        await host.reload(by=ADMIN)
        assert list(host.registry.catalog) == ["hello", "read_result"]
        config("providers: {hello: {enabled: false}}")
        await host.reload(by=ADMIN)
        assert list(host.registry.catalog) == []


def test_under_another_event_loop_than_asyncio_entering_says_what_is_needed() -> None:
    for given in (open_host({"store": "memory://"}, environ={}), FunctionRegistry()):
        with pytest.raises(RuntimeError, match=r"^toolplug runs on asyncio only; start the application on an asyncio"):
            given.__aenter__().send(None)
