"""The quotas of streams and calls of processes that share a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.faulty_store import FaultyStore
from tests.virtual_time import VIRTUAL, pass_time, virtual_clock

from toolplug.catalog.call import Principal
from toolplug.cluster.processes import Processes
from toolplug.errors import QuotaExceeded
from toolplug.host.quotas.quota_use import QuotaPeers, QuotaUse
from toolplug.host.quotas.settings import QuotaLimits, Quotas
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-limits")]

ANN, AMY, BOB = Principal("ann", "t1"), Principal("amy", "t1"), Principal("bob", "t2")
QUOTAS = Quotas(tenant=QuotaLimits(streams=3, calls_per_minute=4))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL


Two = tuple[QuotaUse, QuotaUse, FaultyStore]


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    async with AsyncExitStack() as life:
        inner = await life.enter_async_context(MemoryStore(clock=virtual_clock))
        uses: list[QuotaUse] = []
        stores: list[FaultyStore] = []
        for name in ("here", "there"):
            store = FaultyStore(inner)
            store.id, store.shared = name, True
            processes = await life.enter_async_context(Processes(store, clock=virtual_clock))
            use = QuotaUse(QUOTAS, 10)
            await life.enter_async_context(QuotaPeers(store, processes, use))
            uses.append(use)
            stores.append(store)
        yield uses[0], uses[1], stores[0]


async def test_streams_at_another_process_count_until_they_end_or_it_dies(two: Two) -> None:
    here, there, store = two
    with here.stream("t1", "ann"), here.stream("t1", "ann"):
        await pass_time(10)
        here.check_stream("t1", "ann")  # its own count once
    with here.stream("t1", "ann"), here.stream("t1", "ann"), there.stream("t1", "amy"):
        await pass_time(10)
        for use in (here, there):
            with pytest.raises(QuotaExceeded, match="the tenant may have 3 event streams"):
                use.check_stream("t1", "amy")
            use.check_stream("t2", "bob")
        store.down = True
        await pass_time(20)
        there.check_stream("t1", "amy")
        store.down = False
        await pass_time(10)
    await pass_time(10)
    with there.stream("t1", "ann"), there.stream("t1", "ann"):
        there.check_stream("t1", "amy")


async def test_calls_at_another_process_count_for_a_minute(two: Two) -> None:
    here, there, _ = two
    for use in (here, there):
        await use.count_call(ANN)
        await use.count_call(AMY)
    await pass_time(10)
    for use in (here, there):
        with pytest.raises(QuotaExceeded, match="the tenant may have 4 calls in a minute"):
            await use.count_call(ANN)
        await use.count_call(BOB)


async def test_what_processes_exchange_is_small_however_long_the_names_are(two: Two) -> None:
    here, there, store = two
    callers = [Principal(f"ann-{number}" + "x" * 200, f"tenant-{number}" + "y" * 100) for number in range(300)]
    for caller in callers:
        await here.count_call(caller)
        await there.count_call(caller)
    await pass_time(10)
    records = [await store.read(key) for key in await store.keys("~use/")]
    assert [len(record.value) for record in records if record is not None] == [8 + 300 * 16] * 2
    for caller in callers:
        await here.count_call(caller)
        await here.count_call(caller)
        with pytest.raises(QuotaExceeded, match="the tenant may have 4 calls in a minute"):
            await here.count_call(caller)
