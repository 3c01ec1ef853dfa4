"""A cluster whose primary is killed: its replica takes over, and the store goes on there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

import pytest
from tests.redis_server import RedisServer

from toolplug.errors import StoreError
from toolplug.stores.store import Change, Missed
from toolplug_redis.store import RedisStore

from .conftest import StartServer, form_cluster

pytestmark = [pytest.mark.judge, pytest.mark.anyio]

KEYS = [f"session/{number}" for number in range(60)]
WITHIN_S = 30.0
NODE_TIMEOUT_MS = "1000"


@pytest.fixture
def servers(start_server: StartServer) -> Sequence[RedisServer]:
    """Three primaries and a replica of each."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS)
    return form_cluster([start_server(*options) for _ in range(6)], replicas=1)


@pytest.mark.requirement("I17-3-redis-fail-over", "H-store-redis")
async def test_a_replica_takes_over_with_what_was_replicated(servers: Sequence[RedisServer]) -> None:
    address = servers[0].address
    async with (
        RedisStore(address) as store,
        RedisStore(address) as other,
        aclosing(other.watch("session/")) as watch,
    ):
        revisions = {key: await store.commit(key, b"one", events=[b"one"]) for key in KEYS}
        await asyncio.to_thread(_replicate, servers)
        next(server for server in servers[1:] if _is_primary(server)).kill()
        for key in KEYS:
            revisions[key] = await _committed(store, key, revisions[key])
        told = asyncio.create_task(_told_of(watch, revisions))
        last = {key: await store.commit(key, b"three", expected=revisions[key]) for key in KEYS}
        async with asyncio.timeout(WITHIN_S):
            assert await told == last


async def _committed(store: RedisStore, key: str, expected: int) -> int:
    """Change the record once that is possible; before, it is as it was acknowledged."""
    give_up_at = time.monotonic() + WITHIN_S
    while True:
        try:
            record = await store.read(key)
            assert record is not None, key
            if record.value == b"two":  # a commit that was made, and not answered
                return record.revision
            assert record.revision == expected
            return await store.commit(key, b"two", expected=expected)
        except StoreError:
            assert time.monotonic() < give_up_at
            await asyncio.sleep(0.1)


async def _told_of(watch: AsyncGenerator[Change | Missed], before: Mapping[str, int]) -> dict[str, int]:
    """Return the first newer revision of each key that the watch tells of."""
    newer: dict[str, int] = {}
    async for change in watch:
        if isinstance(change, Change) and change.revision > before[change.key]:
            newer.setdefault(change.key, change.revision)
        if len(newer) == len(KEYS):
            break
    return newer


def _is_primary(server: RedisServer) -> bool:
    with server.client as client:
        return client.info("replication")["role"] == "master"


def _replicate(servers: Sequence[RedisServer]) -> None:
    """Wait until each primary's changes are at its replica."""
    for server in servers:
        if _is_primary(server):
            with server.client as client:
                assert client.execute_command("WAIT", 1, 5000) == 1
