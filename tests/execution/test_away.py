"""Tools whose source is away: listed nowhere, and whoever calls one all the same is told why."""

from __future__ import annotations

import pytest
from tests.execution.harness import Harness, defined

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import Catalog, CatalogDiff
from toolplug.catalog.plan import TenantsGate, Tool
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.live import LiveCatalog, merged_executor
from toolplug.execution.results import unavailable
from toolplug.execution.run import UnknownCalls

pytestmark = pytest.mark.anyio

ONLY_T1 = TenantsGate(frozenset({"t1"}), "providers.yaml:3")


async def gone(call: ToolCall, context: CallContext) -> ToolResult:
    return unavailable(call, "plugin_gone")


async def here(call: ToolCall, context: CallContext) -> str:
    return "here"


def tool(harness: Harness, name: str, target: object = gone, **rules: object) -> Tool:
    return Tool(defined(name), harness.plan(target, name=name, **rules))


async def answer(executor: ToolExecutor, name: str) -> tuple[ToolStatus, str]:
    result = await executor.execute(ToolCall("c1", name), CallContext())
    assert (result.call_id, result.name) == ("c1", name)
    return result.status, result.output


@pytest.mark.requirement("I3-catalog-away", "C-6-detached", "C-3-unavailable")
async def test_a_call_of_a_tool_that_is_away_is_answered_by_its_own_plan_under_either_name(harness: Harness) -> None:
    away = Catalog([tool(harness, "draw")]).prefixed("page")
    live = LiveCatalog(
        UnknownCalls(harness.accounting.counters("_unknown", "_unknown")),
        Catalog([tool(harness, "read", here)], unavailable=away),
    )

    for name in ("page.draw", "page__draw"):
        assert await answer(live, name) == (ToolStatus.UNAVAILABLE, 'tool "draw" is unavailable: plugin_gone')
        assert not live.can_execute(name)
    assert await answer(live, "read") == (ToolStatus.SUCCESS, "here")
    assert await answer(live, "page.other") == (ToolStatus.UNKNOWN_TOOL, "Toolset not found for page.other")
    assert harness.counted() == {"unavailable": 2, "success": 1}


@pytest.mark.requirement("I3-catalog-away")
async def test_a_listed_tool_is_called_before_one_of_its_name_that_is_away(harness: Harness) -> None:
    listed, away = Catalog([tool(harness, "fs.a", here)]), Catalog([tool(harness, "fs.a"), tool(harness, "fs__a")])
    one, two = (
        LiveCatalog(UnknownCalls(harness.counters), Catalog(unavailable=away)),
        LiveCatalog(UnknownCalls(harness.counters), listed),
    )

    for executor in (
        LiveCatalog(UnknownCalls(harness.counters), Catalog(listed.values(), unavailable=away)),
        merged_executor(UnknownCalls(harness.counters), one, two),
    ):
        assert await answer(executor, "fs.a") == (ToolStatus.SUCCESS, "here")
        assert await answer(executor, "fs__a") == (ToolStatus.SUCCESS, "here")


@pytest.mark.requirement("I3-catalog-away", "C-3-unknown")
async def test_whoever_may_not_see_a_tool_is_not_told_that_it_is_away(harness: Harness) -> None:
    live = LiveCatalog(
        UnknownCalls(harness.counters), Catalog(unavailable=Catalog([tool(harness, "draw", gates=(ONLY_T1,))]))
    )
    t1, t2 = Principal(tenant="t1"), Principal(tenant="t2")

    assert live.view(lambda catalog: catalog.visible_to(t1)).catalog is live.catalog
    hidden = live.view(lambda catalog: catalog.visible_to(t2))
    assert await answer(hidden, "draw") == (ToolStatus.UNKNOWN_TOOL, 'no builtin provider handles tool "draw"')


@pytest.mark.requirement("I3-catalog-away", "DESIGN-next-call", "DESIGN-subscribe")
async def test_a_view_follows_what_is_away_though_nobody_hears_of_it(harness: Harness) -> None:
    live, own = (
        LiveCatalog(UnknownCalls(harness.counters)),
        LiveCatalog(UnknownCalls(harness.counters), harness.catalog(read=here)),
    )
    both = merged_executor(UnknownCalls(harness.counters), live, own)
    view = both.view(lambda catalog: catalog.prefixed("p"))
    heard: list[CatalogDiff] = []
    view.subscribe(heard.append)

    assert live.publish(Catalog(unavailable=Catalog([tool(harness, "draw")]))) == CatalogDiff()
    assert (await answer(view, "p.draw"))[0] is ToolStatus.UNAVAILABLE
    live.publish(Catalog(unavailable=Catalog([tool(harness, "draw")])))
    before = view.catalog
    live.publish(Catalog(before.unavailable.values() if before.unavailable else ()))
    live.publish(Catalog())
    assert (await answer(view, "p.draw"))[0] is ToolStatus.UNKNOWN_TOOL
    assert (await answer(view, "p.read"))[0] is ToolStatus.SUCCESS
    assert heard == [CatalogDiff(added=("p.p.draw",)), CatalogDiff(removed=("p.p.draw",))]
