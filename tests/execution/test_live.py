"""Live catalogs, views of them and several joined: who hears what, and when, and what stays the same object."""

from __future__ import annotations

import gc
import weakref

import pytest
from tests.execution.harness import Harness, defined

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.catalog import Catalog, CatalogDiff
from toolplug.catalog.plan import Tool
from toolplug.execution.executor import Listener, ToolExecutor, Unsubscribe
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.run import UnknownCalls

pytestmark = pytest.mark.anyio


class Shop:
    """A live catalog whose tools are set by name."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.live = LiveCatalog(UnknownCalls(harness.counters))
        self.tools: dict[str, Tool] = {}

    def sell(self, *names: str) -> CatalogDiff:
        for name in names:
            if name not in self.tools:
                self.tools[name] = Tool(defined(name), self.harness.plan(answering(name), name=name))
        return self.live.publish(Catalog(self.tools[name] for name in names))


class Foreign:
    """An executor that is no `LiveCatalog`."""

    def __init__(self, inner: LiveCatalog) -> None:
        self.inner = inner

    @property
    def catalog(self) -> Catalog:
        return self.inner.catalog

    def can_execute(self, name: str) -> bool:
        return self.inner.can_execute(name)

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        return await self.inner.execute(call, context)

    def subscribe(self, listener: Listener) -> Unsubscribe:
        return self.inner.subscribe(listener)


def answering(name: str) -> object:
    async def tool(call: object, context: object) -> str:
        return f"{name} ran"

    return tool


@pytest.fixture
def shop(harness: Harness) -> Shop:
    return Shop(harness)


async def ran(executor: ToolExecutor, name: str) -> str:
    return (await executor.execute(ToolCall("c1", name), CallContext())).output


@pytest.mark.requirement("DESIGN-subscribe")
async def test_each_difference_is_heard_once_in_order(shop: Shop) -> None:
    heard: list[CatalogDiff] = []
    stop = shop.live.subscribe(heard.append)
    shop.sell("a")
    shop.sell("a")
    shop.sell("a", "b")
    shop.sell("b", "a")
    shop.sell("b")
    stop()
    stop()
    shop.sell()

    assert heard == [
        CatalogDiff(added=("a",)),
        CatalogDiff(added=("b",)),
        CatalogDiff(reordered=True),
        CatalogDiff(removed=("a",)),
    ]


@pytest.mark.requirement("DESIGN-subscribe")
async def test_a_publication_from_within_a_listener_is_heard_after_by_everyone(shop: Shop) -> None:
    heard: list[tuple[str, tuple[str, ...]]] = []
    inside: list[str] = []

    def first(diff: CatalogDiff) -> None:
        assert not inside
        inside.append("first")
        heard.append(("first", diff.added))
        if diff.added == ("a",):
            shop.sell("a", "b")
        inside.clear()

    def second(diff: CatalogDiff) -> None:
        assert not inside
        heard.append(("second", diff.added))

    shop.live.subscribe(first)
    shop.live.subscribe(second)
    shop.sell("a")

    assert heard == [("first", ("a",)), ("second", ("a",)), ("first", ("b",)), ("second", ("b",))]


@pytest.mark.requirement("DESIGN-subscribe")
async def test_a_listener_that_raises_costs_nobody_else_an_event(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[CatalogDiff] = []

    def raises(diff: CatalogDiff) -> None:
        raise ValueError("listener")

    shop.live.subscribe(raises)
    shop.live.subscribe(heard.append)
    shop.sell("a")
    shop.sell()

    assert heard == [CatalogDiff(added=("a",)), CatalogDiff(removed=("a",))]
    assert caplog.text.count("a listener of a catalog raised") == 2


@pytest.mark.requirement("DESIGN-subscribe")
async def test_a_listener_that_leaves_the_process_wedges_nothing(shop: Shop) -> None:
    heard: list[CatalogDiff] = []

    def exits(diff: CatalogDiff) -> None:
        stop()
        raise SystemExit

    stop = shop.live.subscribe(exits)
    with pytest.raises(SystemExit):
        shop.sell("a")
    shop.live.subscribe(heard.append)
    shop.sell("a", "b")

    assert heard == [CatalogDiff(added=("b",))]


@pytest.mark.requirement("DESIGN-subscribe")
async def test_who_comes_or_goes_while_others_are_told_hears_what_follows_only(shop: Shop) -> None:
    heard: list[str] = []

    def late(diff: CatalogDiff) -> None:
        heard.append(f"late {diff.added}")

    def first(diff: CatalogDiff) -> None:
        stop_second()
        if diff.added == ("a",):
            shop.sell("a", "b")
            shop.live.subscribe(late)

    shop.live.subscribe(first)
    stop_second = shop.live.subscribe(lambda diff: heard.append(f"second {diff.added}"))
    shop.sell("a")
    shop.sell("a", "b", "c")

    assert heard == ["late ('c',)"]


async def test_one_listener_may_subscribe_twice(shop: Shop) -> None:
    heard: list[CatalogDiff] = []
    stop = shop.live.subscribe(heard.append)
    shop.live.subscribe(heard.append)
    stop()
    stop()
    shop.sell("a")

    assert heard == [CatalogDiff(added=("a",))]


@pytest.mark.requirement("I2-2-views", "LAW-1", "DESIGN-next-call")
async def test_a_view_follows_its_source_at_once(shop: Shop) -> None:
    view = shop.live.view(lambda catalog: catalog.prefixed("shop"))
    nested = view.view(lambda catalog: catalog.where(lambda tool: tool.definition.name != "shop.b"))
    shop.sell("a", "b")

    assert (list(view.catalog), list(nested.catalog)) == (["shop.a", "shop.b"], ["shop.a"])
    assert await ran(nested, "shop.a") == "a ran"
    assert await ran(nested, "shop.b") == 'no builtin provider handles tool "shop.b"'
    shop.sell("b")
    assert not nested.can_execute("shop.a")
    assert await ran(nested, "shop.a") == 'no builtin provider handles tool "shop.a"'
    assert await ran(view, "shop.b") == "b ran"


@pytest.mark.requirement("DESIGN-same-object", "I2-2-views")
async def test_a_view_is_the_same_object_while_nothing_in_it_changed(shop: Shop) -> None:
    view = shop.live.view(lambda catalog: catalog.where(lambda tool: tool.definition.name != "b").prefixed("shop"))
    nested = view.view(lambda catalog: catalog.where(lambda tool: True))
    shop.sell("a")
    before, inner = view.catalog, nested.catalog
    shop.sell("a", "b")

    assert view.catalog is before
    assert nested.catalog is inner
    shop.tools.pop("a")
    shop.sell("a", "b")
    assert view.catalog is not before


@pytest.mark.requirement("I2-2-views")
async def test_a_view_follows_a_new_plan_that_lists_alike(shop: Shop, harness: Harness) -> None:
    view = shop.live.view(lambda catalog: catalog.prefixed("shop"))
    shop.sell("a")
    assert await ran(view, "shop.a") == "a ran"
    shop.tools["a"] = Tool(shop.tools["a"].definition, harness.plan(answering("new"), name="a"))
    shop.sell("a")

    assert await ran(view, "shop.a") == "new ran"


@pytest.mark.requirement("I2-2-views")
async def test_a_prefix_without_tools_is_known_through_a_view(shop: Shop) -> None:
    view = MergedExecutor(UnknownCalls(shop.harness.counters), shop.live)
    assert await ran(view, "fs.x") == "Toolset not found for fs.x"
    shop.live.publish(Catalog(prefixes=frozenset({"fs"})))

    assert await ran(view, "fs.x") == 'no builtin provider handles tool "fs.x"'


@pytest.mark.requirement("DESIGN-subscribe", "I2-2-views")
async def test_a_views_listener_hears_the_views_own_differences(shop: Shop) -> None:
    view = shop.live.view(lambda catalog: catalog.where(lambda tool: tool.definition.name != "b").prefixed("shop"))
    heard: list[CatalogDiff] = []
    stop = view.subscribe(heard.append)
    shop.sell("a")
    shop.sell("a", "b")
    shop.sell("b")
    stop()
    shop.sell("a")

    assert heard == [CatalogDiff(added=("shop.a",)), CatalogDiff(removed=("shop.a",))]


@pytest.mark.requirement("I2-2-views")
async def test_the_first_of_a_name_wins_in_a_joined_view_and_the_next_inherits(harness: Harness) -> None:
    one, two = Shop(harness), Shop(harness)
    both = MergedExecutor(UnknownCalls(harness.counters), one.live, Foreign(two.live))
    heard: list[CatalogDiff] = []
    both.subscribe(heard.append)
    one.sell("a")
    two.tools["a"] = Tool(defined("a").owned_by("native", "two"), harness.plan(answering("second"), name="a"))
    two.sell("a", "b")
    assert [await ran(both, name) for name in "ab"] == ["a ran", "b ran"]
    one.sell()

    assert await ran(both, "a") == "second ran"
    assert heard == [CatalogDiff(added=("a",)), CatalogDiff(added=("b",)), CatalogDiff(modified=("a",))]


@pytest.mark.requirement("I2-2-views")
@pytest.mark.parametrize("through", [0, 1, 3])
async def test_a_view_over_a_foreign_executor_follows_it_without_being_told(shop: Shop, through: int) -> None:
    view = MergedExecutor(UnknownCalls(shop.harness.counters), Foreign(shop.live))
    for _ in range(through):
        view = view.view(lambda catalog: catalog.prefixed("x").renamed({}))
    shop.sell("a")
    assert len(view.catalog) == 1
    shop.sell()
    assert len(view.catalog) == 0


@pytest.mark.requirement("I2-2-views")
async def test_a_view_that_is_dropped_leaves_nothing_behind(shop: Shop) -> None:
    view = shop.live.view(lambda catalog: catalog.prefixed("shop"))
    stop = view.subscribe(lambda diff: None)
    shop.sell("a")
    stop()
    gone = weakref.ref(view)
    del view, stop
    gc.collect()

    assert gone() is None
    shop.sell("b")


async def test_a_derivation_that_fails_is_tried_again_when_next_read(shop: Shop) -> None:
    broken = [True]

    def derive(catalog: Catalog) -> Catalog:
        if broken:
            raise ValueError("not yet")
        return catalog

    view = shop.live.view(derive)
    shop.sell("a")
    with pytest.raises(ValueError, match="not yet"):
        assert view.catalog
    broken.clear()
    assert list(view.catalog) == ["a"]


async def test_a_view_of_a_view_whose_derivation_fails_is_tried_again_when_next_read(shop: Shop) -> None:
    broken: list[bool] = []

    def derive(catalog: Catalog) -> Catalog:
        if broken:
            raise ValueError("not yet")
        return catalog

    view = shop.live.view(derive).view(lambda catalog: catalog.prefixed("x"))
    assert len(view.catalog) == 0
    broken.append(True)
    shop.sell("a")
    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            assert view.catalog
    broken.clear()
    assert list(view.catalog) == ["x.a"]


@pytest.mark.requirement("DESIGN-in-flight-plan")
async def test_every_view_of_a_stack_is_a_tool_executor(shop: Shop) -> None:
    view = shop.live.view(lambda catalog: catalog.prefixed("shop"))

    for executor in (shop.live, view, MergedExecutor(UnknownCalls(shop.harness.counters), view), Foreign(view)):
        assert isinstance(executor, ToolExecutor)
