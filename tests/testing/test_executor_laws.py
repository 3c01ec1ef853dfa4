"""The laws of executors hold for every kind there is, and each law finds the executor that breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from tests.plain_tools import plain_tool

from toolplug import (
    CallContext,
    Catalog,
    FunctionProvider,
    FunctionRegistry,
    Principal,
    ToolCall,
    ToolExecutor,
    ToolResult,
    ToolStatus,
    merged,
    open_host,
    tool,
)
from toolplug.catalog.catalog import CatalogDiff
from toolplug.catalog.definition import Note
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.plan import Tool
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.results import unavailable
from toolplug.execution.run import UnknownCalls
from toolplug.execution.task_runner import TaskRunner
from toolplug.testing.broken_rule import ContractBroken
from toolplug.testing.executor_laws import check_executor
from toolplug.testing.provider_check import running

pytestmark = pytest.mark.anyio

ADMIN = Principal(scopes=frozenset({"admin"}))
ALLOWED = CallContext(principal=ADMIN)
Change = Callable[[], Any]
TOOLS = [("notes", "add"), ("files", "list"), ("files", "left_out")]
Opened = tuple[ToolExecutor, str, Change]


class Echo(FunctionProvider):
    """Says what it is told, after a turn of the loop."""

    @tool
    async def echo(self, text: str) -> str:
        """Say it again."""
        await asyncio.sleep(0)
        return text


@asynccontextmanager
async def a_registry() -> AsyncGenerator[Opened]:
    async with running(Echo) as registry:
        yield registry, "echo", lambda: registry.apply(())


@asynccontextmanager
async def a_view() -> AsyncGenerator[Opened]:
    async with running(Echo) as registry:
        view = registry.view(lambda catalog: catalog.prefixed("said").where(lambda tool: True))
        yield view, "said.echo", lambda: registry.apply(())


@asynccontextmanager
async def a_joined() -> AsyncGenerator[Opened]:
    async with running(Echo) as one, running(Echo, key="other") as two:
        both = MergedExecutor(
            UnknownCalls(CallAccounting().counters("_unknown", "_unknown")),
            one.view(lambda tools: tools.prefixed("one")),
            two,
        )
        yield both, "one.echo", lambda: two.apply(())


@asynccontextmanager
async def a_session() -> AsyncGenerator[Opened]:
    """What everybody has, and then the session's own, of which some are away."""
    async with running(Echo) as registry, opened_runner() as runner:
        own = LiveCatalog(UnknownCalls(CallAccounting().counters("_unknown", "_unknown")))
        own.publish(
            Catalog(
                [plain_tool("draw", runner=runner)], unavailable=Catalog([gone("echo", runner), gone("web.a", runner)])
            )
        )
        view = MergedExecutor(
            UnknownCalls(CallAccounting().counters("_unknown", "_unknown")), registry, own, session="CODE2345"
        )
        yield view, "echo", lambda: registry.apply(())


@asynccontextmanager
async def a_caller_of_a_host() -> AsyncGenerator[Opened]:
    async with open_host({"store": "memory://", "providers": {"hello": {"enabled": True}}}, environ={}) as host:
        yield host.executor_for(ADMIN), "hello", lambda: host.disable("hello", by=ADMIN)


KINDS = [a_registry, a_view, a_joined, a_session, a_caller_of_a_host]
ARGUMENTS = {"hello": {"name": "Ann"}}


@pytest.mark.requirement("I2-9-check-executor", "SC-004", "LAW-1", "C-12-executor-protocol")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_laws_hold_for_every_executor(kind: Callable[[], AbstractAsyncContextManager[Opened]]) -> None:
    async with kind() as (executor, name, change):
        calls = {name: ARGUMENTS.get(name, {"text": "Ann"})}
        await check_executor(executor, calls=calls, change=change, context=ALLOWED)


def reshapings() -> dict[str, Callable[[Catalog], Catalog]]:
    """Every way to make a catalog of another one."""
    return {
        "prefixed": lambda catalog: catalog.prefixed("p"),
        "where": lambda catalog: catalog.where(lambda tool: not tool.definition.name.endswith("left_out")),
        "ordered": lambda catalog: catalog.ordered(list(catalog)[::-1]),
        "annotated": lambda catalog: catalog.annotated({name: [Note("hint", "Be kind.")] for name in catalog}),
        "renamed": lambda catalog: catalog.renamed({name: f"{name}_2" for name in catalog}),
        "planned": lambda catalog: catalog.planned(lambda _, plan: replace(plan, timeout_s=4.0)),
        "visible_to": lambda catalog: catalog.visible_to(ADMIN),
        "merged": lambda catalog: merged([catalog, catalog.prefixed("again")])[0],
        "layered": lambda catalog: layer_catalogs(catalog, catalog.prefixed("upon")),
    }


def gone(name: str, runner: TaskRunner) -> Tool:
    """A tool whose application is away."""

    async def answer(call: ToolCall, context: CallContext) -> ToolResult:
        return unavailable(call, "plugin_gone")

    tool = plain_tool(name, source="page", runner=runner)
    return Tool(tool.definition, replace(tool.plan, target=answer))


PAIRS = list(product(reshapings(), repeat=2))


@pytest.mark.requirement("LAW-1", "I2-9-check-executor")
@pytest.mark.parametrize("listed", [3, 1], ids=["one", "layers"])
@pytest.mark.parametrize(("inner", "outer"), PAIRS)
async def test_through_every_pair_of_reshapings_a_listed_name_reaches_its_tool_and_any_other_nobody(
    inner: str, outer: str, listed: int
) -> None:
    async with opened_runner() as runner:
        tools = [plain_tool(name, source=source, runner=runner) for source, name in TOOLS]
        unknown = UnknownCalls(CallAccounting().counters("_unknown", "_unknown"))
        live = LiveCatalog(unknown, Catalog(tools[:listed], unavailable=Catalog([gone("draw", runner)])))
        own = LiveCatalog(
            unknown, Catalog(tools[listed:], unavailable=Catalog([gone("add", runner), gone("fs.a", runner)]))
        )
        view = MergedExecutor(unknown, live, own).view(reshapings()[inner]).view(reshapings()[outer])

        async def change() -> None:
            live.publish(Catalog())

        for name, tool in view.catalog.items():
            reached = await view.execute(ToolCall("c", name), ALLOWED)
            assert reached.output == f"{tool.definition.ref.source}:{tool.definition.ref.name}"
        await check_executor(view, calls={name: {} for name in view.catalog}, change=change, context=ALLOWED)


class Bent:
    """An executor that keeps every law; each below bends one."""

    def __init__(self, live: LiveCatalog) -> None:
        self.live = live

    @property
    def catalog(self) -> Catalog:
        return self.live.catalog

    def can_execute(self, name: str) -> bool:
        return self.live.can_execute(name)

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        return await self.live.execute(call, context)

    def subscribe(self, listener: Callable[[CatalogDiff], None]) -> Callable[[], None]:
        return self.live.subscribe(listener)


class NewCatalogs(Bent):
    @property
    def catalog(self) -> Catalog:
        return Catalog(self.live.catalog.values(), prefixes=self.live.catalog.prefixes)


class TakesAnything(Bent):
    def can_execute(self, name: str) -> bool:
        return True


class NoWireNames(Bent):
    def can_execute(self, name: str) -> bool:
        return name in self.catalog

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        if call.name in self.catalog:
            return await self.live.execute(call, context)
        return await self.live.execute(call._replace(name="unknown"), context)


class OwnIds(Bent):
    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        return (await self.live.execute(call, context))._replace(call_id="mine")


class DeniesTheAway(Bent):
    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        known = call if self.live.can_execute(call.name) else call._replace(name="nobody")
        return await self.live.execute(known, context)


class Guesses(Bent):
    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        known = call if self.live.can_execute(call.name) else call._replace(name="one.echo")
        return await self.live.execute(known, context)


class Raises(Bent):
    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        result = await self.live.execute(call, context)
        if result.status is ToolStatus.INVALID_ARGUMENTS:
            raise ValueError(result.output)
        return result


class NoDeadline(Bent):
    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        return await self.live.execute(call, context._replace(deadline=None))


class SwallowsCancellation(Bent):
    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise LookupError from None
        return await self.live.execute(call, context)


class TellsNobody(Bent):
    def subscribe(self, listener: Callable[[CatalogDiff], None]) -> Callable[[], None]:
        return lambda: None


class TellsTwice(Bent):
    def subscribe(self, listener: Callable[[CatalogDiff], None]) -> Callable[[], None]:
        stops = [self.live.subscribe(listener), self.live.subscribe(listener)]

        def unsubscribe() -> None:
            for stop in stops:
                stop()

        return unsubscribe


class ForgetsNobody(Bent):
    def subscribe(self, listener: Callable[[CatalogDiff], None]) -> Callable[[], None]:
        self.live.subscribe(listener)
        return lambda: None


UPSIDE_DOWN = {"no_tool_has_this_name", "", ".x", "fs.", "fs.no_tool_has_this_name", "one.echo ", "ONE.ECHO"}

ROWS = [
    (NewCatalogs, {"same-catalog"}),
    (TakesAnything, {"can-execute"}),
    (NoWireNames, {"can-execute", "calls", "away"}),
    (OwnIds, {"calls"}),
    (Guesses, {"unknown-tool", "away"}),
    (DeniesTheAway, {"away"}),
    (Raises, {"no-escape", "away"}),
    (NoDeadline, {"deadline"}),
    (SwallowsCancellation, {"cancellation"}),
    (TellsNobody, {"subscribe"}),
    (TellsTwice, {"subscribe"}),
    (ForgetsNobody, {"subscribe"}),
]


@asynccontextmanager
async def opened_runner() -> AsyncGenerator[TaskRunner]:
    runner = TaskRunner()
    await runner.open()
    yield runner
    await runner.aclose()


@asynccontextmanager
async def plain() -> AsyncGenerator[LiveCatalog]:
    """An executor over one tool of no arguments, with a name that is not its wire name, and one that is away."""
    async with opened_runner() as runner:
        tools = Catalog([plain_tool("echo", runner=runner)], unavailable=Catalog([gone("draw", runner)])).prefixed(
            "one"
        )
        yield LiveCatalog(UnknownCalls(CallAccounting().counters("_unknown", "_unknown")), tools)


@pytest.mark.requirement("I2-9-check-executor")
@pytest.mark.parametrize(("kind", "rules"), ROWS)
async def test_an_executor_that_breaks_a_law_is_told_it(kind: type[Bent], rules: set[str]) -> None:
    async with plain() as live:

        async def change() -> None:
            live.publish(Catalog())

        await check_executor(Bent(live), calls={"one.echo": {}}, context=ALLOWED)
        with pytest.raises(ContractBroken) as caught:
            await check_executor(kind(live), calls={"one.echo": {}}, change=change, context=ALLOWED)
        assert {item.rule for item in caught.value.broken} == rules
        assert all(item.where and item.what and item.fix for item in caught.value.broken)


@pytest.mark.requirement("I2-9-check-executor")
async def test_an_example_that_is_not_listed_and_a_change_that_changes_nothing_are_told() -> None:
    async def nothing() -> None:
        """Change nothing."""

    async with FunctionRegistry({"echo": Echo()}) as registry:
        with pytest.raises(ContractBroken) as caught:
            await check_executor(registry, calls={"gone": {}}, change=nothing)
        found = [(item.rule, item.where, item.what) for item in caught.value.broken]
        assert found[0] == ("examples", "example 'gone'", "is not listed")
        assert found[-1] == ("subscribe", "change", "changes nothing in the catalog")
