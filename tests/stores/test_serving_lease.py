"""The lease of the process that serves a store on the network."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from functools import partial

import pytest
from tests.virtual_time import VIRTUAL, virtual_clock

from toolplug.errors import StoreInUse
from toolplug.stores.memory import MemoryStore
from toolplug.stores.serving_lease import KEY, RENEW_S, TTL_S, ServingLease

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-2-store-one-server")]
lease = partial(ServingLease, scheme="shelf", wait_s=0.0)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    async with MemoryStore(clock=virtual_clock) as store:
        yield store


async def test_a_second_process_is_refused_while_the_first_serves(store: MemoryStore) -> None:
    async with lease(store):
        for _ in range(2):
            with pytest.raises(StoreInUse, match="the shelf store is served by process") as refused:
                await lease(store).__aenter__()
            assert refused.value.pid == os.getpid()
    async with lease(store):
        pass
    assert await store.keys() == []


async def test_a_process_takes_over_when_the_first_has_ended_or_died(store: MemoryStore) -> None:
    first = lease(store)
    await first.__aenter__()
    first._renewing.cancel()
    async with asyncio.timeout(TTL_S + RENEW_S), lease(store):
        assert await store.keys() == [KEY]


async def test_a_lease_that_another_process_took_is_reported_and_left_alone(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with lease(store):
        taken = b'{"process": "other", "host": "elsewhere", "pid": 7}'
        await store.commit(KEY, taken)
        with caplog.at_level(logging.ERROR):
            await asyncio.sleep(3 * RENEW_S)
    assert [record.message for record in caplog.records] == [
        "the shelf store is now also served by process 7 on elsewhere: stop one of them"
    ]
    record = await store.read(KEY)
    assert record is not None
    assert record.value == taken
