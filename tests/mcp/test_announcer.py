"""Following many lists: nobody is told twice before they listen, and no turn of the loop looks at all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.mcp.lists import catalog_of

from toolplug import Catalog
from toolplug.catalog.catalog import CatalogDiff
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.live import LiveCatalog
from toolplug.execution.run import UnknownCalls
from toolplug.parts.mcp.serving.notifications import LOOKED_AT, ListChangedNotifier, Seen

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6-list-changed")]


def source() -> LiveCatalog:
    return LiveCatalog(UnknownCalls(CallAccounting().counters("test", "test")), catalog_of("a"))


class Counted:
    """A view's function that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, catalog: Catalog) -> Catalog:
        self.asked += 1
        return catalog


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_changes_that_come_before_the_client_listens_are_told_as_one() -> None:
    live, announcer = source(), ListChangedNotifier()
    with announcer.watch(live.view(lambda catalog: catalog)) as watch:
        live.publish(catalog_of("a", "b"))
        await settled()
        live.publish(catalog_of("a", "b", "c"))
        await settled()
        assert await watch.wait_for_change()
        waiting = asyncio.ensure_future(watch.wait_for_change())
        await settled()
        assert not waiting.done()
        live.publish(catalog_of("a"))
        assert await waiting


async def test_a_change_that_leaves_the_list_as_it_is_is_not_told() -> None:
    live, announcer = source(), ListChangedNotifier()
    with announcer.watch(live.view(lambda catalog: catalog.where(lambda tool: tool.definition.name == "a"))) as watch:
        waiting = asyncio.ensure_future(watch.wait_for_change())
        live.publish(catalog_of("a", "b"))
        await settled()
        assert not waiting.done()
        waiting.cancel()


async def test_when_it_is_told_the_list_shows_it() -> None:
    live, announcer = source(), ListChangedNotifier()
    view = live.view(lambda catalog: catalog)
    with announcer.watch(view) as watch:
        live.publish(catalog_of("z"))
        assert await watch.wait_for_change()
        assert list(view.catalog) == ["z"]


async def test_a_change_of_many_lists_is_looked_at_a_few_at_a_time() -> None:
    live, announcer, counted = source(), ListChangedNotifier(), Counted()
    views = [live.view(counted) for _ in range(10 * LOOKED_AT)]
    watches = [announcer.watch(view) for view in views]
    counted.asked = 0
    live.publish(catalog_of("b"))
    assert counted.asked == 0
    seen: list[int] = []
    while counted.asked < len(views):
        before = counted.asked
        await asyncio.sleep(0)
        seen.append(counted.asked - before)
    assert max(seen) == LOOKED_AT
    assert all([await watch.wait_for_change() for watch in watches])
    announcer.stop()


async def test_a_client_that_listed_an_older_list_is_told_at_once() -> None:
    live, announcer = source(), ListChangedNotifier()
    before = live.catalog.etag
    live.publish(catalog_of("a", "b"))
    with announcer.watch(live, since=Seen(tools=before)) as watch:
        assert await watch.wait_for_change()
    with announcer.watch(live, since=Seen(tools=live.catalog.etag)) as watch:
        waiting = asyncio.ensure_future(watch.wait_for_change())
        await settled()
        assert not waiting.done()
        waiting.cancel()


async def test_the_end_of_a_session_and_a_stop_end_what_they_concern() -> None:
    live, announcer = source(), ListChangedNotifier()
    one, other = announcer.watch(live, of="ONE"), announcer.watch(live, of="OTHER")
    announcer.end("ONE")
    assert not await one.wait_for_change()
    announcer.stop()
    assert not await other.wait_for_change()
    assert not await announcer.watch(live).wait_for_change()


class Foreign:
    """An executor that cannot say that it may have changed, only what has."""

    def __init__(self) -> None:
        self.catalog = catalog_of("a")
        self.listeners: list[Callable[[CatalogDiff], None]] = []

    def subscribe(self, listener: Callable[[CatalogDiff], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)


async def test_an_executor_of_somebody_elses_is_listened_to_until_the_watch_is_closed() -> None:
    foreign, announcer = Foreign(), ListChangedNotifier()
    with announcer.watch(foreign) as watch:  # type: ignore[arg-type]
        foreign.catalog = catalog_of("b")
        for listener in foreign.listeners:
            listener(CatalogDiff(added=("b",)))
        assert await watch.wait_for_change()
    assert foreign.listeners == []


async def test_a_closed_watch_leaves_nothing_with_what_it_followed() -> None:
    live, announcer = source(), ListChangedNotifier()
    watch = announcer.watch(live, of="ONE")
    live.publish(catalog_of("b"))
    watch.close()
    await settled()
    assert not await watch.wait_for_change()
    assert (live._marked, announcer._watches, announcer._sessions) == ({}, {}, {})
