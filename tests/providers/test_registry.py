"""The registry: many providers as one executor."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from toolplug import (
    CallContext,
    FunctionProvider,
    FunctionRegistry,
    Principal,
    ToolCall,
    ToolDefinition,
    ToolExecutor,
    ToolResult,
    ToolStatus,
    current_tenant,
    merged,
    route,
    tool,
)
from toolplug.errors import ConfigError
from toolplug.providers.entry import ProviderState
from toolplug.providers.site import ProviderContext, ProviderRecords
from toolplug.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Echo(FunctionProvider):
    """Says what it is told."""

    @tool(read_only=True)
    async def echo(self, text: str) -> str:
        """Say it again."""
        return f"{self.key}: {text}"


class Clock(FunctionProvider):
    """Tells whose turn it is."""

    @tool
    async def tenant(self) -> str:
        """The tenant."""
        return current_tenant()

    @tool
    async def echo(self, text: str) -> str:
        """Say it backwards."""
        return text[::-1]


class Nothing(FunctionProvider):
    """Has neither tool nor route nor metric."""


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("c1", name, arguments)


@pytest.mark.requirement(
    "FR-005", "FR-006", "SC-001", "SC-004", "REG-US1-1", "REG-US1-2", "REG-one-executor", "C-12-registry-instances"
)
async def test_the_tools_of_all_providers_are_one_executor() -> None:
    async with FunctionRegistry({"echo": Echo(), "clock": Clock()}) as registry:
        assert isinstance(registry, ToolExecutor)
        assert list(registry.catalog) == ["echo", "tenant"]
        told = await registry.execute(call("echo", text="hi"), CallContext())
        assert (told.call_id, told.name, told.output, told.status) == ("c1", "echo", "echo: hi", ToolStatus.SUCCESS)


@pytest.mark.requirement("FR-002", "FR-003", "FR-004", "C-12-hook-defaults")
async def test_a_provider_of_nothing_but_a_class_is_active() -> None:
    async with FunctionRegistry({"nothing": Nothing()}) as registry:
        (record,) = registry.records()
        assert (record.state, record.tools, record.routes) == (ProviderState.ACTIVE, (), ())
        assert len(registry.catalog) == 0


@pytest.mark.requirement("FR-007", "C-12-can-execute", "REG-US1-2")
async def test_a_name_that_is_not_listed_reaches_nobody() -> None:
    class Greedy(Echo):
        def can_execute(self, name: str) -> bool:
            return True

        async def execute(self, call: ToolCall, context: CallContext) -> object:
            return f"ran {call.name}"

    async with FunctionRegistry({"greedy": Greedy()}) as registry:
        result = await registry.execute(call("anything"), CallContext())
        assert (result.status, result.output) == (
            ToolStatus.UNKNOWN_TOOL,
            'no builtin provider handles tool "anything"',
        )
        assert registry.can_execute("echo")
        assert not registry.can_execute("anything")
        assert (await registry.execute(call("echo", text="x"), CallContext())).output == "ran echo"


@pytest.mark.requirement("C-12-unlisted-not-run", "C-12-refused-left-out")
async def test_a_listed_tool_that_its_provider_refuses_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Shy(Clock):
        def can_execute(self, name: str) -> bool:
            return name == "tenant"

    async with FunctionRegistry({"shy": Shy()}) as registry:
        assert list(registry.catalog) == ["tenant"]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "provider 'shy' lists the tool 'echo' but its can_execute refuses it: left out"
    ]


@pytest.mark.requirement("FR-019", "REG-edge-conflict")
async def test_of_two_tools_with_one_name_the_first_provider_keeps_it_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FunctionRegistry({"clock": Clock(), "echo": Echo()}) as registry:
        assert list(registry.catalog) == ["tenant", "echo"]
        for _ in range(3):
            assert (await registry.execute(call("echo", text="abc"), CallContext())).output == "cba"
        states = {record.key: record.state for record in registry.records()}
        assert states == {"clock": ProviderState.ACTIVE, "echo": ProviderState.SHADOWED}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "the tool 'echo' of provider 'echo' is not listed: provider 'clock' comes first in the order and has it already"
    ]


@pytest.mark.requirement("REG-edge-conflict")
async def test_a_tool_that_lost_its_name_has_no_lines_of_zeros_until_it_is_listed() -> None:
    metrics = CollectorRegistry()
    async with FunctionRegistry({"clock": Clock(), "echo": Echo()}, metrics=metrics) as registry:

        def lines() -> set[tuple[str, str]]:
            name = "antwort_builtin_tool_in_flight"
            return {
                (sample.labels["provider"], sample.labels["tool_name"])
                for family in metrics.collect()
                for sample in family.samples
                if sample.name == name and sample.labels["provider"] != "_unknown"
            }

        assert lines() == {("clock", "tenant"), ("clock", "echo")}
        await registry.tools_of("echo").execute(call("echo", text="abc"), CallContext())
        assert lines() == {("clock", "tenant"), ("clock", "echo"), ("echo", "echo")}


@pytest.mark.requirement("REG-tenant-delivered", "REG-in-process")
async def test_a_tool_finds_the_tenant_of_its_caller() -> None:
    async with FunctionRegistry({"clock": Clock()}) as registry:
        both = await asyncio.gather(
            *(
                registry.execute(call("tenant"), CallContext(principal=Principal(tenant=tenant)))
                for tenant in ("t1", "t2")
            )
        )
        assert [result.output for result in both] == ["t1", "t2"]
        assert current_tenant() == "default"


@pytest.mark.requirement("FR-010", "C-12-registry-guarded", "FR-018", "REG-edge-panic")
async def test_a_registry_without_a_host_is_guarded_and_measured() -> None:
    class Broken(FunctionProvider):
        @tool
        async def broken(self) -> str:
            raise RuntimeError("secret")

    metrics = CollectorRegistry()
    async with FunctionRegistry({"broken": Broken()}, metrics=metrics) as registry:
        result = await registry.execute(call("broken"), CallContext())
        assert (result.status, result.output) == (
            ToolStatus.PANIC,
            'internal error: builtin tool "broken" panicked',
        )
        labels = {"provider": "broken", "tool_name": "broken"}
        assert metrics.get_sample_value("antwort_builtin_tool_executions_total", {**labels, "status": "panic"}) == 1
        assert metrics.get_sample_value("antwort_builtin_tool_duration_seconds_count", labels) == 1
    assert generate_latest(metrics) == b""


@pytest.mark.requirement("FR-012", "REG-US3-1", "REG-US3-2")
async def test_a_providers_own_collectors_are_scraped_with_their_values() -> None:
    class Counting(FunctionProvider):
        async def start(self, site: ProviderContext) -> None:
            self.asked = Counter("asked", "Questions.", registry=None)

        def collectors(self) -> list[Counter]:
            return [self.asked]

        @tool
        async def ask(self) -> str:
            self.asked.inc()
            return "?"

    metrics = CollectorRegistry()
    async with FunctionRegistry({"counting": Counting()}, metrics=metrics) as registry:
        await registry.execute(call("ask"), CallContext())
        await registry.execute(call("ask"), CallContext())
        assert metrics.get_sample_value("asked_total") == 2
    async with FunctionRegistry({"one": Counting(), "two": Counting()}, metrics=metrics) as registry:
        await registry.execute(call("ask"), CallContext())
        assert metrics.get_sample_value("asked_total", {"provider": "one"}) == 1
        assert metrics.get_sample_value("asked_total", {"provider": "two"}) == 0


@pytest.mark.requirement("C-12-tool-result")
async def test_a_tool_may_answer_with_a_whole_result_and_its_call_is_filled_in() -> None:
    class Whole(FunctionProvider):
        @tool
        async def whole(self) -> ToolResult:
            return ToolResult(output="seen", structured=[1], metadata={"pages": 2}, status=ToolStatus.TOOL_ERROR)

    async with FunctionRegistry({"whole": Whole()}) as registry:
        result = await registry.execute(ToolCall(id="c7", name="whole"), CallContext())
    assert result == ToolResult(
        call_id="c7",
        name="whole",
        output="seen",
        structured=[1],
        metadata={"pages": 2},
        status=ToolStatus.TOOL_ERROR,
    )


@pytest.mark.requirement("C-12-site", "C-12-site-store-tenant", "C-5-tenant-store")
async def test_a_provider_has_a_directory_and_records_for_each_tenant() -> None:
    class Keeper(FunctionProvider):
        async def start(self, site: ProviderContext) -> None:
            self.site = site

    keeper = Keeper()
    one, two = Principal(tenant="a/b"), Principal(tenant="a")
    async with FunctionRegistry({"keeper": keeper}):
        assert (keeper.site.key, keeper.site.state_dir.is_dir()) == ("keeper", True)
        assert await keeper.site.store(one).commit("note", b"mine") == 1
        assert await keeper.site.store(two).read("note") is None
        assert await keeper.site.store(two).keys() == []
        assert await keeper.site.store(Principal(tenant="a", subject="x")).read("b/note") is None
        found = await keeper.site.store(one).read("note")
        assert found is not None
        assert found.value == b"mine"
        assert await keeper.site.store(one).keys("no") == ["note"]
    assert not keeper.site.state_dir.exists()


@pytest.mark.requirement("C-12-tools-read-once")
async def test_tools_are_read_once_after_start() -> None:
    class Dynamic(FunctionProvider):
        steps: list[str]

        def __init__(self) -> None:
            self.steps = []

        async def start(self, site: ProviderContext) -> None:
            self.steps.append("start")

        def tools(self) -> list[ToolDefinition]:
            self.steps.append("tools")
            return [ToolDefinition(name="made", description="Made at run time.")]

        def can_execute(self, name: str) -> bool:
            return name == "made"

        async def execute(self, call: ToolCall, context: CallContext) -> object:
            return {"name": call.name, "arguments": dict(call.arguments)}

    dynamic = Dynamic()
    async with FunctionRegistry({"dynamic": dynamic}) as registry:
        result = await registry.execute(call("made", a=1), CallContext())
        assert result.structured == {"name": "made", "arguments": {"a": 1}}
        await registry.execute(call("made"), CallContext())
    assert dynamic.steps == ["start", "tools"]


@pytest.mark.requirement("C-3-conflict-route", "REG-one-handler")
async def test_two_providers_with_one_route_do_not_start_and_both_are_named() -> None:
    class Notes(FunctionProvider):
        @route("GET", "/v1/notes/{id}")
        async def notes(self, request: object) -> object:
            return []

    class Others(FunctionProvider):
        closed = False

        @route("GET", "/v1/notes/{note}")
        async def notes(self, request: object) -> object:
            return []

        async def aclose(self) -> None:
            self.closed = True

    others = Others()
    with pytest.raises(ConfigError) as caught:
        async with FunctionRegistry({"notes": Notes(), "others": others}):
            raise AssertionError("it must not start")
    assert [problem.message for problem in caught.value.problems] == [
        "provider 'others' declares GET /v1/notes/{note}, which is a route of provider 'notes'"
    ]
    assert others.closed


@pytest.mark.requirement("C-3-reserved-route")
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics",
        "/v1/tools",
        "/v1/tools/x",
        "/v1/models/{id}",
        "/v1/configuration",
        "/v1/tasks",
        "/api/anything",
        "/mcp",
        "/.well-known/oauth-protected-resource/mcp",
    ],
)
async def test_a_route_on_a_path_of_the_host_does_not_start(path: str) -> None:
    class Taker(FunctionProvider):
        @route("GET", path)
        async def take(self, request: object) -> object:
            return None

    with pytest.raises(ConfigError) as caught:
        async with FunctionRegistry({"taker": Taker()}):
            raise AssertionError("it must not start")
    assert [problem.message for problem in caught.value.problems] == [
        f"provider 'taker' declares GET {path}, which is a path of the host itself"
    ]


@pytest.mark.requirement("REG-edge-conflict", "C-3-conflict-listed-once")
async def test_a_registry_can_be_joined_with_another_and_the_first_still_wins() -> None:
    async with FunctionRegistry({"a": Echo()}) as first, FunctionRegistry({"b": Clock()}) as second:
        catalog, conflicts = merged([first.catalog, second.catalog])
        assert list(catalog) == ["echo", "tenant"]
        assert [(item.name, item.winner.ref.source, item.loser.ref.source) for item in conflicts] == [
            ("echo", "a", "b")
        ]


@pytest.mark.requirement("C-12-registry-instances")
async def test_a_provider_that_its_maker_started_is_not_started_twice() -> None:
    class Once(FunctionProvider):
        starts = 0

        async def start(self, site: ProviderContext) -> None:
            self.starts += 1

    once = Once()
    async with FunctionRegistry({"once": once}):
        assert once.starts == 1
    site = ProviderContext(
        key="once", state_dir=Path(), store=lambda principal: ProviderRecords(MemoryStore(), principal.tenant)
    )
    await once.start(site)
    async with FunctionRegistry({"once": once}):
        assert once.starts == 2


@pytest.mark.requirement("H-trust-descriptions")
async def test_what_nobody_can_see_is_taken_out_of_descriptions() -> None:
    class Sly(FunctionProvider):
        @tool(description="Read\u200b a\x1b file\u202e.\n\tSafely.\U000e0041")
        async def read(self) -> str:
            return ""

    async with FunctionRegistry({"sly": Sly()}) as registry:
        assert registry.catalog["read"].definition.description == "Read a file.\n\tSafely."


@pytest.mark.requirement("H-fact-label-cap")
async def test_past_two_thousand_tools_the_metrics_say_how_many_have_no_lines() -> None:
    class Many(FunctionProvider):
        def tools(self) -> list[ToolDefinition]:
            return [ToolDefinition(name=f"tool_{number}") for number in range(2_001)]

        async def execute(self, call: ToolCall, context: CallContext) -> object:
            return None

    metrics = CollectorRegistry()
    async with FunctionRegistry({"many": Many()}, metrics=metrics):
        assert metrics.get_sample_value("antwort_builtin_tool_series_capped") == 2  # one is of unknown names
        labels = {"provider": "many", "tool_name": "tool_2000"}
        assert metrics.get_sample_value("antwort_builtin_tool_in_flight", labels) is None


async def test_the_tools_of_one_provider_are_its_own_also_where_an_earlier_one_has_their_names() -> None:
    async with FunctionRegistry({"first": Echo(), "second": Echo()}) as registry:
        second = registry.tools_of("second")
        assert [tool.definition.ref.source for tool in second.catalog.values()] == ["second"] * len(second.catalog)
        assert list(second.catalog) == list(registry.catalog)
        assert list(registry.tools_of("nobody").catalog) == []
        await registry.apply(())
        assert list(second.catalog) == []
