"""The fault table's row *provider*: one terminal result, the others unaffected, everything back afterwards."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from importlib import import_module
from threading import Event

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from toolplug import (
    CallContext,
    FunctionProvider,
    FunctionRegistry,
    ProviderContext,
    ToolCall,
    ToolDefinition,
    ToolStatus,
    tool,
)
from toolplug.crashes import CodeOwner
from toolplug.errors import ConfigError
from toolplug.providers.collectors import Collected, ProviderCollectors
from toolplug.providers.entry import DesiredProvider, ProviderEntry, ProviderState
from toolplug.providers.plugins.shapes import desired_providers
from toolplug.testing.faulty import FaultyProvider, Step

pytestmark = pytest.mark.anyio

PANIC = 'internal error: builtin tool "{}" panicked'
NOT_JSON = 'result of tool "{}" is not JSON'
TIMEOUT = 'tool "{}" timed out after 0.05 s'

ROWS = [
    pytest.param("raises", ToolStatus.PANIC, PANIC, marks=pytest.mark.requirement("H-provider-raises", "FR-018")),
    pytest.param("exits", ToolStatus.PANIC, PANIC, marks=pytest.mark.requirement("H-provider-exits", "C-3-panic-exit")),
    pytest.param("interrupts", ToolStatus.PANIC, PANIC, marks=pytest.mark.requirement("H-provider-exits")),
    pytest.param("leaves", ToolStatus.PANIC, PANIC, marks=pytest.mark.requirement("H-provider-raises")),
    pytest.param("cancels_itself", ToolStatus.PANIC, PANIC, marks=pytest.mark.requirement("H-provider-cancels-itself")),
    pytest.param("hangs", ToolStatus.TIMEOUT, TIMEOUT, marks=pytest.mark.requirement("H-provider-hangs")),
    pytest.param(
        "swallows_cancellation",
        ToolStatus.TIMEOUT,
        TIMEOUT,
        marks=pytest.mark.requirement("H-provider-swallows-cancellation"),
    ),
    pytest.param(
        "blocks_its_thread", ToolStatus.TIMEOUT, TIMEOUT, marks=pytest.mark.requirement("H-provider-exhausts-threads")
    ),
    pytest.param("refuses", ToolStatus.TOOL_ERROR, "not today", marks=pytest.mark.requirement("C-3-tool-error-raised")),
    pytest.param("returns_none", ToolStatus.SUCCESS, "null", marks=pytest.mark.requirement("H-provider-returns-none")),
    pytest.param(
        "returns_bytes", ToolStatus.TOOL_ERROR, NOT_JSON, marks=pytest.mark.requirement("H-provider-returns-bytes")
    ),
    pytest.param(
        "returns_generator",
        ToolStatus.TOOL_ERROR,
        NOT_JSON,
        marks=pytest.mark.requirement("H-provider-returns-generator"),
    ),
    pytest.param(
        "returns_nan", ToolStatus.TOOL_ERROR, NOT_JSON, marks=pytest.mark.requirement("H-provider-returns-nan")
    ),
    pytest.param(
        "returns_cycle", ToolStatus.TOOL_ERROR, NOT_JSON, marks=pytest.mark.requirement("H-provider-returns-cycle")
    ),
]


@pytest.mark.requirement("H-provider-next-call")
@pytest.mark.parametrize(("name", "status", "text"), ROWS)
async def test_a_fault_is_one_result_and_one_metric_and_the_next_call_is_answered(
    name: str, status: ToolStatus, text: str
) -> None:
    faulty, metrics = FaultyProvider(), CollectorRegistry()
    async with FunctionRegistry({"faulty": faulty}, metrics=metrics) as registry:
        result = await registry.execute(ToolCall("c1", name), CallContext())
        assert (result.call_id, result.name, result.status, result.output) == ("c1", name, status, text.format(name))
        healthy = await registry.execute(ToolCall("c2", "works"), CallContext())
        assert healthy.output == "fine"
        counted = metrics.get_sample_value(
            "antwort_builtin_tool_executions_total", {"provider": "faulty", "tool_name": name, "status": status}
        )
        assert counted == 1
        faulty.release.set()
    in_flight = {counters.tool_name: counters.in_flight for counters in registry.accounting.all_counters()}
    assert set(in_flight.values()) == {0}


@pytest.mark.requirement("H-provider-returns-30mb")
async def test_thirty_megabytes_are_cut() -> None:
    async with FunctionRegistry({"faulty": FaultyProvider()}) as registry:
        result = await registry.execute(ToolCall("c1", "returns_30_mb"), CallContext())
    assert result.status is ToolStatus.SUCCESS
    assert len(result.output) < 1_048_576 + 200
    assert result.metadata["truncated"] == {"bytes": 30_000_000, "kept": 1_048_576}


@pytest.mark.requirement("H-provider-mutates-arguments")
async def test_a_tool_that_changes_its_arguments_changes_nobody_elses() -> None:
    items = ["yours"]
    async with FunctionRegistry({"faulty": FaultyProvider()}) as registry:
        for _ in range(2):
            result = await registry.execute(ToolCall("c1", "mutates", {"items": items}), CallContext())
            assert result.output == "2"
    assert items == ["yours"]


@pytest.mark.requirement("H-provider-recursion")
async def test_a_tool_that_calls_itself_through_the_executor_is_stopped_at_sixteen() -> None:
    faulty = FaultyProvider()
    async with FunctionRegistry({"faulty": faulty}) as registry:
        faulty.executor = registry
        result = await registry.execute(ToolCall("c1", "calls_again"), CallContext())
    assert result.output == 'tool "calls_again" is not allowed: depth: tools call one another 16 deep'
    ended = {counters.tool_name: dict(counters.ended) for counters in registry.accounting.all_counters()}
    assert ended["calls_again"] == {"success": 16, "denied": 1}


@pytest.mark.requirement("H-provider-exhausts-threads", "C-2-sync-bulkhead-default")
async def test_a_provider_that_uses_up_its_threads_leaves_others_theirs() -> None:
    class Sleeper(FunctionProvider):
        @tool
        def nap(self) -> str:
            return "rested"

    faulty = FaultyProvider()
    async with FunctionRegistry({"faulty": faulty, "sleeper": Sleeper()}) as registry:
        blocked = [registry.execute(ToolCall(str(n), "blocks_its_thread"), CallContext()) for n in range(16)]
        assert {result.status for result in await asyncio.gather(*blocked)} == {"timeout"}
        refused = await registry.execute(ToolCall("17", "blocks_its_thread"), CallContext())
        assert refused.status == "limited"
        assert (await registry.execute(ToolCall("c", "nap"), CallContext())).output == "rested"
        faulty.release.set()


@pytest.mark.requirement("C-2-sync-bulkhead-default", "H-provider-exhausts-threads")
async def test_the_synchronous_tools_of_one_provider_share_sixteen_places() -> None:
    gate = Event()

    class Slow(FunctionProvider):
        @tool
        def waits(self) -> str:
            gate.wait()
            return "waited"

        @tool
        def other(self) -> str:
            return "had a place"

    async with FunctionRegistry({"slow": Slow()}) as registry:
        waiting = [asyncio.create_task(registry.execute(ToolCall(str(n), "waits"), CallContext())) for n in range(16)]
        await asyncio.sleep(0)
        refused = await registry.execute(ToolCall("c", "other"), CallContext())
        gate.set()
        assert {result.output for result in await asyncio.gather(*waiting)} == {"waited"}
        admitted = await registry.execute(ToolCall("c", "other"), CallContext())
    assert (refused.status, admitted.output) == ("limited", "had a place")


STEPS = [
    pytest.param(
        "constructor", "its constructor raised", marks=pytest.mark.requirement("H-provider-fails-constructor")
    ),
    pytest.param("start", "start() raised", marks=pytest.mark.requirement("H-provider-fails-start")),
    pytest.param("tools", "tools() raised", marks=pytest.mark.requirement("H-provider-fails-tools")),
    pytest.param("routes", "routes() raised", marks=pytest.mark.requirement("H-provider-fails-routes")),
    pytest.param("collectors", "collectors() raised", marks=pytest.mark.requirement("H-provider-fails-collectors")),
]


def wanted(step: Step, *, required: bool, made: list[FaultyProvider]) -> DesiredProvider:
    """A faulty provider as an entry of a configuration."""

    def build() -> FunctionProvider:
        provider = FaultyProvider.__new__(FaultyProvider)
        provider.key, provider.config = "faulty", FaultyProvider.Config(fails=step)
        made.append(provider)
        provider.__init__()
        return provider

    return DesiredProvider(ProviderEntry(key="faulty", type="faulty", required=required), build)


def healthy() -> DesiredProvider:
    return DesiredProvider(ProviderEntry(key="healthy", type="healthy"), FaultyProvider)


@pytest.mark.requirement("C-2-required-false", "C-12-aclose-after-failed-start")
@pytest.mark.parametrize(("step", "said"), STEPS)
async def test_a_provider_that_is_not_required_fails_alone(
    step: Step, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[FaultyProvider] = []
    async with FunctionRegistry() as registry:
        await registry.apply([wanted(step, required=False, made=made), healthy()])
        failed, fine = registry.records()
        assert (failed.state, fine.state) == (ProviderState.START_FAILED, ProviderState.ACTIVE)
        assert failed.reason == f"provider 'faulty': {said} ToolCrash: {step} went wrong"
        assert failed.fix == "fix the cause"
        assert (await registry.execute(ToolCall("c", "works"), CallContext())).output == "fine"
    assert [provider.closed for provider in made] == [0 if step == "constructor" else 1]
    (crash,) = [record.getMessage() for record in caplog.records if record.name == "toolplug.crashes"]
    assert crash.startswith(f"{said.removesuffix(' raised').replace('its', 'the')} of provider 'faulty' raised")


async def test_a_metric_that_is_made_twice_in_one_process_has_a_fix_of_its_own() -> None:
    def build() -> FunctionProvider:
        Counter("made_twice", "A counter in the registry of the whole process.")
        return FaultyProvider()

    made = Counter("made_twice", "As a provider of the same type has made it.")
    try:
        async with FunctionRegistry() as registry:
            entry = ProviderEntry(key="twice", type="twice", required=False)
            await registry.apply([DesiredProvider(entry, build)])
            (record,) = registry.records()
    finally:
        REGISTRY.unregister(made)
    assert "Duplicated timeseries in CollectorRegistry" in record.reason
    assert record.fix == "make its metrics with registry=None and return them from collectors()"


@pytest.mark.requirement("C-2-required-true")
@pytest.mark.parametrize(("step", "said"), STEPS)
async def test_a_required_provider_that_fails_changes_nothing(step: Step, said: str) -> None:
    made: list[FaultyProvider] = []
    async with FunctionRegistry({"old": FaultyProvider()}) as registry:
        before = registry.catalog
        with pytest.raises(ConfigError) as caught:
            await registry.apply([wanted(step, required=True, made=made), healthy()])
        assert [problem.message for problem in caught.value.problems] == [
            f"provider 'faulty': {said} ToolCrash: {step} went wrong"
        ]
        assert registry.catalog is before
        assert (await registry.execute(ToolCall("c", "works"), CallContext())).output == "fine"
    assert [provider.closed for provider in made] == [0 if step == "constructor" else 1]


@pytest.mark.requirement("H-provider-fails-tools")
@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"$ref": "#/$defs/nowhere"}, {"pattern": "("}])
async def test_a_tool_that_no_arguments_could_ever_fit_is_told_by_its_name_before_it_is_listed(
    schema: dict[str, object],
) -> None:
    class Mistaken(FunctionProvider):
        def tools(self) -> list[ToolDefinition]:
            return [ToolDefinition(name="add", parameters={"type": "object", "properties": {"note": schema}})]

    with pytest.raises(
        ConfigError, match=r"tools\(\) raised InvalidDefinition: the tool 'add': not a valid JSON Schema"
    ):
        await FunctionRegistry({"notes": Mistaken()}).__aenter__()


@pytest.mark.requirement("C-3-aclose-once", "C-12-aclose-after-failed-start")
async def test_a_start_that_is_broken_off_closes_what_had_started() -> None:
    begun = asyncio.Event()

    class Slow(FaultyProvider):
        async def start(self, site: ProviderContext) -> None:
            begun.set()
            await asyncio.Event().wait()

    quick, slow = FaultyProvider(), Slow()
    entering = asyncio.create_task(FunctionRegistry({"quick": quick, "slow": slow}).__aenter__())
    await begun.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    entering.cancel()
    await asyncio.wait({entering})
    assert (entering.cancelled(), quick.closed, slow.closed) == (True, 1, 1)


@pytest.mark.requirement("H-provider-fails-aclose", "C-3-aclose-once")
async def test_a_close_that_fails_keeps_no_other_from_closing(caplog: pytest.LogCaptureFixture) -> None:
    faulty, fine = FaultyProvider(), FaultyProvider()
    faulty.config = FaultyProvider.Config(fails="aclose")
    async with FunctionRegistry({"faulty": faulty, "fine": fine}):
        pass
    assert (faulty.closed, fine.closed) == (1, 1)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert re.fullmatch(r"aclose\(\) of provider 'faulty' raised ToolCrash at \S*/faulty.py:\d+ in \S+", line)


@pytest.mark.requirement("H-provider-fails-collectors")
async def test_a_collector_that_raises_loses_only_its_own_lines() -> None:
    class Raising(Collector):
        def collect(self) -> list[Metric]:
            raise SystemExit(1)

    class Measured(FunctionProvider):
        def collectors(self) -> list[Collector]:
            return [Raising(), Counter("fine", "Fine.", registry=None)]

    metrics = CollectorRegistry()
    async with FunctionRegistry({"measured": Measured()}, metrics=metrics):
        first, second = generate_latest(metrics).decode(), generate_latest(metrics).decode()
    assert "fine_total 0.0" in first
    assert 'antwort_builtin_collector_errors_total{provider="measured"} 1.0' in first
    assert 'antwort_builtin_collector_errors_total{provider="measured"} 2.0' in second


@pytest.mark.slow
@pytest.mark.requirement("H-provider-fails-collectors")
def test_a_collector_that_hangs_loses_only_its_own_lines_and_is_not_asked_again_meanwhile() -> None:
    release, asked = Event(), list[str]()

    class Hanging(Collector):
        def collect(self) -> list[Metric]:
            asked.append("asked")
            release.wait()
            return [CounterMetricFamily("late", "Late.", value=1)]

    active = [Collected(CodeOwner("slow"), False, [Hanging(), Counter("fine", "Fine.", registry=None)])]
    metrics = CollectorRegistry()
    metrics.register(ProviderCollectors(lambda: active, "antwort", within_s=1.0))
    first, second = generate_latest(metrics).decode(), generate_latest(metrics).decode()
    release.set()
    assert asked == ["asked"]
    assert "fine_total 0.0" in first
    assert "late_total" not in second
    assert 'antwort_builtin_collector_errors_total{provider="slow"} 2.0' in second


class Lacking(FunctionProvider):
    """Needs a package that is not installed."""

    async def start(self, site: ProviderContext) -> None:
        import_module("no_such_package.part")


async def test_a_package_that_a_start_misses_is_said_in_words(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError) as caught:
        await FunctionRegistry([Lacking()]).__aenter__()
    (problem,) = caught.value.problems
    said = r"provider 'lacking': start\(\) raised ModuleNotFoundError: No module named 'no_such_package' at \S+:\d+"
    assert re.fullmatch(said, problem.message)
    assert problem.hint == "install the package that has 'no_such_package'"
    assert caplog.records == []  # no trace: it would say no more


async def test_the_log_says_how_a_provider_is_had_that_is_gone_on_without(caplog: pytest.LogCaptureFixture) -> None:
    (wanted,) = desired_providers([Lacking])
    optional = wanted._replace(entry=replace(wanted.entry, required=False))
    async with FunctionRegistry() as registry:
        await registry.apply([optional])
        assert registry.records()[0].state == "start-failed"
    (line,) = caplog.messages
    assert line.endswith("; going on without it (required: false); install the package that has 'no_such_package'")
