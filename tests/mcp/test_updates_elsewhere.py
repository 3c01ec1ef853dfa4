"""Resources that a client follows by one process, and whose updates another one with its stream notifies it of."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.mcp.test_peer_sessions import ALICE, CLIENT, Two, both, ended, heard, two

from toolplug.catalog.offering import OfferedEntry, Offering

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-mcp")]

__all__ = ["ended", "two"]

URI = "note://one"


class Source:
    """Follows a resource for one client."""

    def __init__(self) -> None:
        self.updated: Callable[[], None] | None = None

    async def follow(self, uri: str, updated: Callable[[], None]) -> Callable[[], None]:
        self.updated = updated
        return self.stop

    def stop(self) -> None:
        self.updated = None

    def update(self) -> None:
        assert self.updated is not None
        self.updated()

    @property
    def resource(self) -> OfferedEntry:
        plan = SimpleNamespace(ref=SimpleNamespace(kind="native", source="notes"))
        return OfferedEntry(key=URI, fields={}, plan=cast("Any", plan), follow=self.follow)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def offering(source: Source) -> Offering:
    return Offering(resources={URI: source.resource})


async def test_an_update_reaches_the_process_with_the_stream(two: Two, source: Source, offering: Offering) -> None:
    begun, found = await both(two)
    await begun.subscriptions.add(URI, source.resource)
    woken: list[str] = []
    found.subscriptions.wake = lambda: woken.append("woken")
    source.update()
    await heard()
    assert woken == ["woken"]
    assert found.subscriptions.take_updates(Offering()) == ()
    source.update()
    await heard()
    assert found.subscriptions.take_updates(offering) == (URI,)
    other = Source()
    await begun.subscriptions.add("note://one/part", other.resource)
    other.update()
    await heard()
    assert found.subscriptions.take_updates(offering) == ("note://one/part",)


async def test_an_update_waits_for_a_stream_in_a_process_that_did_not_know_the_client(
    two: Two, source: Source, offering: Offering
) -> None:
    begun = await two[0].begin(ALICE, CLIENT)
    await begun.subscriptions.add(URI, source.resource)
    source.update()
    await heard()
    adopted = await two[1].find_shared(begun.id, ALICE)
    assert adopted is not None
    assert adopted.subscriptions.take_updates(offering) == (URI,)


async def test_an_update_where_the_stream_is_stays_there(two: Two, source: Source, offering: Offering) -> None:
    begun, found = await both(two)
    await begun.subscriptions.add(URI, source.resource)
    begun.subscriptions.wake = lambda: None
    source.update()
    await heard()
    assert begun.subscriptions.take_updates(offering) == (URI,)
    assert found.subscriptions.take_updates(offering) == ()


async def test_a_resource_is_left_at_any_process(two: Two, source: Source, offering: Offering) -> None:
    begun, found = await both(two)
    await begun.subscriptions.add(URI, source.resource)
    source.update()
    await heard()
    found.subscriptions.leave(URI)
    await heard()
    assert source.updated is None
    assert found.subscriptions.take_updates(offering) == begun.subscriptions.take_updates(offering) == ()
