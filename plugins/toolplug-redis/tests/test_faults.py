"""What goes wrong with a server is one clear error within two seconds, and the store recovers by itself."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable
from contextlib import aclosing, suppress
from dataclasses import replace

import pytest

from toolplug.errors import StoreRefused, StoreUnavailable
from toolplug.stores.store import Change, Missed
from toolplug_redis import server as server_module
from toolplug_redis.address import Address
from toolplug_redis.store import RedisStore

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("I17-3-redis-faults", "H-store-redis")]

PATIENCE_S = 20.0
"""Ten times as long as a use of a stopped server takes, which without a limit would take for ever."""


async def opened(address: Address) -> None:
    async with RedisStore(address):
        pass


async def error_of(use: Awaitable[object]) -> str:
    """Return the message of a use that is unavailable before long, which has nothing of the URL."""
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(StoreUnavailable) as caught:
            await use
    assert "127.0.0.1" not in str(caught.value)
    return str(caught.value)


async def wait_until_answering(store: RedisStore) -> None:
    """Wait until the store has made a change again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(StoreUnavailable):
                await store.commit("again", b"")
                return
            await asyncio.sleep(0.05)


async def test_a_server_that_is_stopped_is_unavailable_and_goes_on(start_server) -> None:
    server = start_server()
    async with RedisStore(server.address) as store:
        await store.commit("key", b"value")
        server.signal(signal.SIGSTOP)
        said = await asyncio.gather(
            error_of(store.read("key")), error_of(store.commit("key", b"2")), error_of(store.keys())
        )
        assert all("does not answer within 2 s" in each for each in said)
        server.signal(signal.SIGCONT)
        await wait_until_answering(store)


async def test_a_server_that_does_not_run_is_unavailable(start_server) -> None:
    server = start_server()
    address = server.address
    server.kill()
    assert "does not answer" in await error_of(opened(address))


async def test_a_replica_refuses_changes(start_server, node) -> None:
    replica = start_server("--replicaof", "127.0.0.1", str(node.port))
    async with RedisStore(replica.address) as store:
        assert await store.read("key") is None
        assert "You can't write against a read only replica" in await error_of(store.commit("key", b""))


@pytest.mark.parametrize("password", [None, "wrong"])
async def test_a_wrong_password_is_refused(start_server, password: str | None) -> None:
    server = start_server("--requirepass", "hunter2")
    with pytest.raises(StoreRefused, match="refuses the user or the password"):
        await opened(replace(server.address, password=password))
    await opened(replace(server.address, password="hunter2"))


async def test_a_user_without_the_commands_is_refused(start_server) -> None:
    server = start_server("--user", "small", "on", ">small", "~*", "&*", "+info", "+subscribe", "+time", "+hmget")
    async with RedisStore(replace(server.address, username="small", password="small")) as store:
        assert await store.read("key") is None
        with pytest.raises(StoreRefused, match="refuses the user or the password"):
            await store.commit("key", b"")


async def test_a_database_that_is_not_there_is_refused(node) -> None:
    with pytest.raises(StoreRefused, match="no such database"):
        await opened(replace(node.address, db=999))


async def test_an_old_server_is_refused(node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "OLDEST_VERSION", (99, 0))
    with pytest.raises(StoreRefused, match=r"has version [0-9.]+; the store needs 99\.0 or newer"):
        await opened(node.address)


async def test_a_full_server_refuses_changes_until_records_are_removed(start_server) -> None:
    server = start_server("--maxmemory", "6mb", "--maxmemory-policy", "noeviction")
    async with RedisStore(server.address) as store:
        written: list[str] = []

        async def write() -> None:
            for number in range(1000):
                await store.commit(f"key/{number}", bytes(100_000))
                written.append(f"key/{number}")

        assert "when used memory > 'maxmemory'" in await error_of(write())
        with server.client as client:
            client.config_set("maxmemory", "3mb")
        assert await store.keys() == sorted(written)
        assert await store.read("key/0") is not None
        for key in written:
            await store.commit(key, None)
        await store.commit("key/0", b"again")


async def test_a_server_that_may_remove_records_is_warned_of(start_server, caplog: pytest.LogCaptureFixture) -> None:
    server = start_server("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    with caplog.at_level(logging.WARNING):
        await opened(server.address)
    assert "set maxmemory-policy to noeviction, not allkeys-lru" in caplog.text


async def test_a_server_that_has_lost_the_scripts_gets_them_again(store: RedisStore, node) -> None:
    await store.commit("key", b"")
    with node.client as client:
        client.script_flush()
    answers = await asyncio.gather(*(store.extend("key", events=[f"{n}".encode()]) for n in range(20)), store.keys())
    assert answers == [*[True] * 20, ["key"]]
    assert [event.data for event in (await store.events("key", None)).entries] == [f"{n}".encode() for n in range(20)]


async def test_a_watch_that_lost_its_connection_has_missed_changes(store: RedisStore, node) -> None:
    async with aclosing(store.watch("")) as watch:
        assert await anext(watch) == Missed()
        with node.client as client:
            client.execute_command("CLIENT KILL", "TYPE", "pubsub")
        async with asyncio.timeout(PATIENCE_S):
            assert await anext(watch) == Missed()
        async with RedisStore(replace(node.address, prefix=store.prefix)) as other:
            revision = await other.commit("key", b"value")
            async with asyncio.timeout(PATIENCE_S):
                assert await anext(watch) == Change("key", revision, b"value", ())


async def test_replies_that_are_cut_in_half_are_no_replies(node, proxy) -> None:
    async with proxy.to(node.port):
        proxy.cutting = False
        async with RedisStore(replace(node.address, port=proxy.port)) as store:
            names = [f"key/{number}" for number in range(20)]
            for name in names:
                await store.commit(name, name.encode() * 100)
            proxy.cutting = True
            read = 0
            for _ in range(20):
                records = await asyncio.gather(*map(store.read, names), return_exceptions=True)
                for name, record in zip(names, records, strict=True):
                    if not isinstance(record, StoreUnavailable):
                        assert record is not None
                        assert not isinstance(record, BaseException)
                        assert record.value == name.encode() * 100
                        read += 1
                with suppress(StoreUnavailable):
                    await store.extend(names[0], events=[b"event"])
            assert proxy.cuts > 5
            assert read > 100
            proxy.cutting = False
            await wait_until_answering(store)
