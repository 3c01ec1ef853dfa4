"""Records expire on the server's clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from toolplug.stores.store import Events
from toolplug_redis.store import RedisStore

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I17-3-redis-expiry")]

SKEW_S = 0.2
"""How far the server's clock may seem to differ from ours: the time that an answer takes."""


async def test_the_store_has_the_servers_clock(store: RedisStore) -> None:
    before = time.time()
    assert before - SKEW_S <= store.now() <= time.time() + SKEW_S
    await store.commit("key", b"", ttl_s=60)
    record = await store.read("key")
    assert record is not None
    assert record.expires_at is not None
    assert before + 60 - SKEW_S <= record.expires_at <= store.now() + 60 + SKEW_S


async def test_a_record_is_gone_after_its_time_without_any_change(store: RedisStore, node) -> None:
    first = await store.commit("s/short", b"", ttl_s=0.1, events=[b"event"])
    await store.commit("s/long", b"", ttl_s=60)
    await store.commit("s/ever", b"", ttl_s=0.1)
    await store.commit("s/ever", b"")
    await asyncio.sleep(0.15)
    assert await store.read("s/short") is None
    assert await store.keys() == ["s/ever", "s/long"]
    assert await store.revisions(["s/short"]) == {"s/short": 0}
    assert await store.events("s/short", None) == Events(known=False)
    assert await store.extend("s/short", events=[b""]) is False
    assert await store.commit("s/short", b"", expected=0) > first


async def test_an_extension_renews_the_log_as_well(store: RedisStore) -> None:
    await store.commit("key", b"", ttl_s=0.15, events=[b"event"])
    for _ in range(3):
        await asyncio.sleep(0.08)
        assert await store.extend("key", ttl_s=0.15)
    assert (await store.events("key", None)).entries[0].data == b"event"


async def test_nothing_is_left_of_expired_records_but_an_hour_of_what_was_removed(store: RedisStore, node) -> None:
    for number in range(30):
        await store.commit(f"gone/x/{number}", b"", ttl_s=0.01, events=[b"event"])
    await store.commit("removed/x", b"")
    await store.commit("removed/x", None)
    await asyncio.sleep(0.05)
    for _ in range(2):
        await store.commit("other/x", b"")
    await store.commit("other/x", None)
    with node.client as client:
        left = {name: client.pttl(name) for name in client.scan_iter(match=store.prefix + ":*")}
    assert sorted(name.rpartition(b":")[2] for name in left) == [b"other/x", b"removed/x"]
    assert all(3_500_000 < ms <= 3_600_000 for ms in left.values())


async def test_numbers_are_exact_in_javascript(store: RedisStore) -> None:
    revision = await store.commit("key", b"", events=[b"event"])
    record = await store.read("key")
    assert record is not None
    assert revision < 2**53
    assert record.position * 10_000 < 2**53
