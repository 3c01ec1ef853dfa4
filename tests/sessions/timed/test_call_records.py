"""The records of relayed calls: a call that has ended is never one that waits."""

from __future__ import annotations

import pytest
from tests.faulty_store import FaultyStore
from tests.virtual_time import pass_time, virtual_clock

from toolplug.cluster.processes import Processes
from toolplug.parts.sessions.peers.shared_records import CallEnd, CallRecords, StoredCall
from toolplug.stores.store import DelegatingStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-relay")]


class _Ahead(DelegatingStore):
    """A store whose time another process knows with an error, as that of a server."""

    def now(self) -> float:
        return super().now() + 0.2


def waiting_call(within_s: float) -> StoredCall:
    return StoredCall("a", b"{}", virtual_clock() + within_s, "c1", "r1", {}, "process.1", queued=False)


async def test_the_end_of_a_call_is_kept_longer_than_the_call(store: FaultyStore) -> None:
    here = CallRecords(store, Processes(store))
    there = CallRecords(_Ahead(store), Processes(store))
    call = waiting_call(3)
    await here.publish("code", "id", call)
    await there.end("code", "id", CallEnd("done"), call.deadline)
    for _ in range(800):
        assert await here.waiting("code") == []
        await pass_time(0.1)
    assert await here.read("code", "id") is None
    assert await here.end_of("code", "id") is None


async def test_a_call_that_is_written_again_does_not_outlive_its_end(store: FaultyStore) -> None:
    records = CallRecords(store, Processes(store))
    call = waiting_call(3)
    await records.publish("code", "id", call)
    await records.end("code", "id", CallEnd("done"), call.deadline)
    for after_s in (20, 30, 20):
        await pass_time(after_s)
        await records.publish("code", "id", call)
        assert await records.waiting("code") == []
    await pass_time(10)
    assert await records.waiting("code") == []
