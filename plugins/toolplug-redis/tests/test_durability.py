"""What survives the death of a server, and how soon the store answers again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace

import pytest

from toolplug.errors import StoreRefused, StoreUnavailable
from toolplug.stores.store import Missed
from toolplug_redis.store import RedisStore

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("I17-3-redis-faults", "H-store-redis")]

PATIENCE_S = 20.0


@pytest.mark.parametrize("appendfsync", ["everysec", "always"])
async def test_acknowledged_changes_survive_the_death_of_the_server(start_server, appendfsync: str) -> None:
    server = start_server("--appendonly", "yes", "--appendfsync", appendfsync)
    acknowledged: list[int] = []
    enough = asyncio.Event()

    async def write(store: RedisStore) -> None:
        for number in range(100_000):
            await store.commit(f"key/{number}", b"value", events=[b"event"])
            acknowledged.append(number)
            if number == 500:
                enough.set()

    async with RedisStore(server.address) as store, aclosing(store.watch("again")) as watch:
        assert await anext(watch) == Missed()
        writing = asyncio.create_task(write(store))
        await enough.wait()
        server.kill()
        with pytest.raises(StoreUnavailable):
            await writing
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await store.read("key/0")
        server.start()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(StoreUnavailable):
                    await store.commit("again", b"")
                    break
                await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENCE_S):
            assert await anext(watch) == Missed()
            await store.commit("again/2", b"")
            while getattr(await anext(watch), "key", "") != "again/2":
                pass
        for number in acknowledged:
            record = await store.read(f"key/{number}")
            assert record is not None
            assert (await store.events(f"key/{number}", None)).entries[0].data == b"event"


async def test_a_cluster_has_one_database(cluster) -> None:
    with pytest.raises(StoreRefused, match="a cluster has database 0 only"):
        async with RedisStore(replace(cluster.address, db=1)):
            pass
