"""Several executors as one whose members change while others follow it."""

from __future__ import annotations

import pytest
from tests.plain_tools import plain_tool

from toolplug.catalog.catalog import Catalog, CatalogDiff
from toolplug.execution.accounting import CallAccounting
from toolplug.execution.live import LiveCatalog, MergedExecutor
from toolplug.execution.run import UnknownCalls

pytestmark = pytest.mark.anyio

COUNTERS = UnknownCalls(CallAccounting().counters("_unknown", "_unknown"))


def live(*names: str) -> LiveCatalog:
    return LiveCatalog(COUNTERS, Catalog(plain_tool(name) for name in names))


@pytest.mark.requirement("DESIGN-subscribe")
async def test_who_follows_a_joint_sees_and_hears_what_a_change_of_members_changes() -> None:
    one, two = live("a", "b"), live("b", "c")
    joint = MergedExecutor(COUNTERS, one)
    view = joint.view(lambda catalog: catalog.prefixed("all"))
    heard: list[CatalogDiff] = []
    stop = view.subscribe(heard.append)
    joint.join(two)
    assert list(view.catalog) == ["all.b", "all.c"]
    joint.join(two, one)
    joint.join()
    one.publish(Catalog())
    assert len(view.catalog) == 0
    joint.join(two)
    two.publish(Catalog([plain_tool("d")]))
    stop()
    joint.join(one)
    assert heard == [
        CatalogDiff(added=("all.c",), removed=("all.a",)),
        CatalogDiff(added=("all.a",)),
        CatalogDiff(removed=("all.b", "all.c", "all.a")),
        CatalogDiff(added=("all.b", "all.c")),
        CatalogDiff(added=("all.d",), removed=("all.b", "all.c")),
    ]


async def test_a_joint_of_one_lists_that_very_catalog_and_is_the_same_while_nothing_changed() -> None:
    one = live("a")
    joint = MergedExecutor(COUNTERS, one)
    assert joint.catalog is one.catalog
    joint.join(one)
    assert joint.catalog is one.catalog
