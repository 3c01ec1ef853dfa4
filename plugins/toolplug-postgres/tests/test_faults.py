"""The store when its server is killed, stopped, refuses, or when connections and callers go away."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, aclosing, suppress

import asyncpg
import pytest
from tests.postgres_server import PASSWORD, PATIENCE_S, PostgresServer, postgres

from toolplug.errors import StoreConflict, StoreRefused, StoreUnavailable
from toolplug.stores.store import Change, Event, Events, Missed, Store
from toolplug_postgres.notifications import Listener
from toolplug_postgres.server import parse_url
from toolplug_postgres.store import PostgresStore

pytestmark = [pytest.mark.judge, pytest.mark.needs("pg_createcluster"), pytest.mark.anyio]

LIMIT_S = 10.0
"""Five times as long as a stopped server may hold up: less than one such wait after the other."""
"""Two seconds, and what a busy machine adds."""


@pytest.fixture
def own() -> Generator[PostgresServer]:
    """A server that the test may kill."""
    with postgres(fsync="on") as server:
        yield server


def store_of(url: str) -> PostgresStore:
    return PostgresStore(parse_url(url))


async def asked(server: PostgresServer, statement: str, database: str = "postgres") -> list[asyncpg.Record]:
    """Run a statement as the server's administrator."""
    connection = await asyncpg.connect(
        host="127.0.0.1", port=server.port, user="postgres", password=PASSWORD, database=database
    )
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


async def until_answered(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask again until the store answers."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await ask()
            except StoreUnavailable:
                await asyncio.sleep(0.02)
            else:
                return


async def until_missed(watch: AsyncIterator[Change | Missed]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await anext(watch) != Missed():
            pass


@pytest.mark.requirement("C-12-postgres-killed")
async def test_a_killed_server_loses_no_acknowledged_commit(own: PostgresServer) -> None:
    async with store_of(own.url()) as store, aclosing(store.watch("")) as watch:
        await until_missed(watch)
        acknowledged: dict[str, int] = {}

        async def write(key: str) -> None:
            while True:
                acknowledged[key] = await store.commit(key, b"x", events=[b"event"])

        writing = [asyncio.create_task(write(f"key {number}")) for number in range(8)]
        await asyncio.sleep(0.5)
        await store.commit("~volatile", b"")
        own.kill()
        ended = await asyncio.gather(*writing, return_exceptions=True)
        assert all(isinstance(error, StoreUnavailable) for error in ended)
        await until_missed(watch)
        own.start(fsync="on")
        await until_answered(lambda: store.read("key 0"))
        revisions = await store.revisions(acknowledged)
        # The one that was under way may have been written too.
        assert all(found - acknowledged[key] in (0, 1) for key, found in revisions.items())
        assert len(acknowledged) == 8
        assert await store.read("~volatile") is None
        await until_missed(watch)
        revision = await store.commit("key 0", b"again")
        assert revision == revisions["key 0"] + 1
        async with asyncio.timeout(PATIENCE_S):
            while (item := await anext(watch)) == Missed():
                pass
        assert item == Change("key 0", revision, b"again", ())


@pytest.mark.requirement("C-12-postgres-away")
async def test_a_stopped_server_is_unavailable_within_two_seconds(own: PostgresServer) -> None:
    async with store_of(own.url()) as store:
        await store.commit("key", b"value")
        own.signal(signal.SIGSTOP)
        for _ in range(2):
            asked_at_once = [store.read("key"), store.revisions(["key"]), store.keys(), store.events("key", None)]
            writes = [store.commit("key", b"other"), store.commit("~key", b""), store.extend("key", events=[b""])]
            async with asyncio.timeout(LIMIT_S):
                ended = await asyncio.gather(*asked_at_once, *writes, return_exceptions=True)
            assert all(isinstance(error, StoreUnavailable) for error in ended), ended
            assert ["may have been written" in str(error) for error in ended] == [False] * 4 + [True] * 3
        own.signal(signal.SIGCONT)
        await until_answered(lambda: store.commit("key", b"after"))
        record = await store.read("key")
        assert record is not None
        assert record.value == b"after"


@pytest.mark.requirement("C-12-postgres-away")
async def test_a_stopped_server_holds_up_neither_start_nor_end(own: PostgresServer) -> None:
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(store_of(own.url()))
        own.signal(signal.SIGSTOP)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(StoreUnavailable, match="two seconds"):
                await store_of(own.url()).__aenter__()
        async with asyncio.timeout(LIMIT_S):
            await opened.aclose()
    own.signal(signal.SIGCONT)


@pytest.mark.requirement("C-12-postgres-away")
async def test_terminated_connections_are_opened_again(server: PostgresServer, url: str) -> None:
    terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolplug'"
    async with store_of(url) as store, aclosing(store.watch("")) as watch:
        await until_missed(watch)
        revision = await store.commit("key", b"")
        assert isinstance(await anext(watch), Change)
        for _ in range(5):
            await asked(server, terminate)
            await until_missed(watch)
            record = await store.read("key")
            assert record is not None
            assert record.revision == revision
            revision = await store.commit("key", b"")
            assert await store.commit("~key", b"") > 0
        writing = asyncio.gather(
            *(store.commit(f"key {n}", b"", expected=0) for n in range(500)), return_exceptions=True
        )
        await asked(server, terminate)
        for number, ended in enumerate(await writing):
            record = await store.read(f"key {number}")
            # One that failed may have been written, as its error says.
            assert isinstance(ended, StoreUnavailable) or (record is not None and record.revision == ended)


@pytest.mark.requirement("C-12-postgres-away")
async def test_a_database_that_becomes_read_only_is_unavailable_until_it_is_not(server: PostgresServer) -> None:
    await asked(server, "CREATE DATABASE frozen")
    async with store_of(server.url("frozen")) as store:
        await store.commit("key", b"value")
        await asked(server, "ALTER DATABASE frozen SET default_transaction_read_only = on")
        await asked(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'frozen'")
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.commit("key", b"other")
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store_of(server.url("frozen")).__aenter__()
        await asked(server, "ALTER DATABASE frozen RESET default_transaction_read_only")
        await until_answered(lambda: store.commit("key", b"other"))


@pytest.mark.requirement("C-12-postgres-away")
async def test_a_server_that_refuses_is_named_with_the_fix_and_without_the_password(server: PostgresServer) -> None:
    await asked(server, "CREATE ROLE guest LOGIN PASSWORD 'secret'")
    await asked(server, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    for url, error, words in (
        (server.url(password="wr0ng"), StoreUnavailable, "check user and password"),
        (server.url("missing"), StoreUnavailable, "createdb"),
        (server.url(user="guest", password="secret", schema="denied"), StoreUnavailable, "CREATE SCHEMA"),
        (server.url("latin"), StoreRefused, "UTF8"),
        (server.url().replace(str(server.port), "1"), StoreUnavailable, "cannot be reached: Connection refused"),
        (server.url(sslmode="require"), StoreUnavailable, "SSL"),
    ):
        with pytest.raises(error, match=words) as caught:
            await store_of(url).__aenter__()
        told = str(caught.value)
        assert "127.0.0.1" in told
        assert not any(secret in told for secret in ("wr0ng", "secret", "ss%2F", PASSWORD, "postgresql://"))


@pytest.mark.requirement("C-12-postgres-away")
async def test_a_server_that_delivers_no_notifications_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listener, "_receive", lambda *_: None)
    with pytest.raises(StoreUnavailable, match="not a connection pool"):
        await store_of(url).__aenter__()


@pytest.mark.requirement("C-12-postgres-schema")
async def test_a_schema_that_its_owner_made_for_a_user_is_enough(server: PostgresServer) -> None:
    await asked(server, "CREATE ROLE tenant LOGIN PASSWORD 'secret'")
    await asked(server, "CREATE SCHEMA granted AUTHORIZATION tenant")
    async with store_of(server.url(user="tenant", password="secret", schema="granted")) as store:
        assert await store.commit("key", b"value") > 0


@pytest.mark.requirement("C-12-postgres-schema")
async def test_a_schema_of_a_newer_version_or_of_another_program_is_left_alone(server: PostgresServer) -> None:
    async with store_of(server.url(schema="newer")) as store:
        await store.commit("key", b"value")
    await asked(server, "UPDATE newer.version SET version = 2")
    await asked(server, "CREATE SCHEMA foreign_one CREATE TABLE users (name text)")
    tables = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('newer', 'foreign_one') ORDER BY 1, 2"
    before = await asked(server, tables)
    with pytest.raises(StoreRefused, match="newer toolplug"):
        await store_of(server.url(schema="newer")).__aenter__()
    with pytest.raises(StoreRefused, match="another program"):
        await store_of(server.url(schema="foreign_one")).__aenter__()
    assert await asked(server, tables) == before
    assert (await asked(server, "SELECT count(*) FROM newer.records"))[0][0] == 1


@pytest.mark.requirement("C-12-postgres-away")
async def test_a_server_without_free_connections_is_unavailable_until_it_has_some(own: PostgresServer) -> None:
    async with store_of(own.url()) as store:
        await asked(own, "CREATE ROLE busy LOGIN PASSWORD 'secret' CONNECTION LIMIT 3")
        await asked(own, "CREATE SCHEMA busy AUTHORIZATION busy")
        url = own.url(user="busy", password="secret", schema="busy")
        held = [
            await asyncpg.connect(host="127.0.0.1", port=own.port, user="busy", password="secret", database="postgres")
            for _ in range(3)
        ]
        with pytest.raises(StoreUnavailable, match="too many connections"):
            await store_of(url).__aenter__()
        for connection in held:
            await connection.close()
        await store.read("key")


@pytest.mark.requirement("C-12-postgres-schema")
async def test_stores_that_start_at_once_make_one_schema(server: PostgresServer, url: str) -> None:
    stores = [store_of(url) for _ in range(5)]
    await asyncio.gather(*(store.__aenter__() for store in stores))
    revisions = await asyncio.gather(*(store.commit("key", b"") for store in stores))
    assert sorted(revisions) == list(range(min(revisions), min(revisions) + 5))
    await asyncio.gather(*(store.aclose() for store in stores))


@pytest.mark.requirement("C-12-postgres-writers")
async def test_writers_of_the_same_keys_never_end_in_a_deadlock(url: str) -> None:
    keys = [f"key {number}" for number in range(40)]
    begun: dict[str, int] = {}
    async with store_of(url) as one, store_of(url) as other, store_of(url) as third:

        async def write(store: Store, order: list[str]) -> None:
            for _ in range(30):
                await asyncio.gather(*(store.commit(key, b"", events=[b"event"]) for key in order))
                await asyncio.gather(*(store.commit(key, None) for key in random.sample(order, 3)))

        begun = await one.revisions(keys)
        await asyncio.gather(write(one, keys), write(other, keys[::-1]), write(third, random.sample(keys, len(keys))))
        assert begun == dict.fromkeys(keys, 0)
        found = await other.revisions(keys)
        assert await one.revisions(keys) == found


@pytest.mark.requirement("C-12-postgres-writers")
async def test_no_update_is_lost_while_other_commits_wait_for_the_disk(own: PostgresServer) -> None:
    own.kill()
    own.start(fsync="on", commit_delay="5000", commit_siblings="0")
    async with store_of(own.url()) as one, store_of(own.url()) as other, store_of(own.url()) as third:
        await one.commit("sum", b"0")

        async def increment(store: Store) -> None:
            while True:
                record = await store.read("sum")
                assert record is not None
                with suppress(StoreConflict):
                    await store.commit("sum", b"%d" % (int(record.value) + 1), expected=record.revision)
                    return

        await asyncio.gather(*(increment(store) for store in (one, other, third) for _ in range(20)))
        record = await one.read("sum")
        assert record is not None
        assert record.value == b"60"


@pytest.mark.requirement("C-12-postgres-writers")
async def test_no_caller_gets_the_answer_of_a_cancelled_one(url: str) -> None:
    chance = random.Random(7)
    async with store_of(url) as store:
        values = {f"key {number}": f"value {number}".encode() for number in range(100)}
        await asyncio.gather(*(store.commit(key, value) for key, value in values.items()))

        async def cancelled(ask: Callable[[], Awaitable[object]]) -> object:
            task = asyncio.ensure_future(ask())
            await asyncio.sleep(chance.random() * 0.01)
            task.cancel()
            return (await asyncio.gather(task, return_exceptions=True))[0]

        async def checked(key: str) -> None:
            record = await store.read(key)
            assert record is not None
            assert record.value == values[key]

        async def changed(number: int) -> None:
            key = f"changed {number}"
            await cancelled(lambda: store.commit(key, key.encode(), events=[b"a", b"b"]))
            await store.commit("later", b"")
            record = await store.read(key)
            if record is not None:
                assert record.value == key.encode()
                assert (await store.events(key, None)).entries == (
                    Event(record.position - 1, b"a"), Event(record.position, b"b")
                )  # fmt: skip

        async with asyncio.TaskGroup() as tasks:
            for number, key in enumerate(values):
                tasks.create_task(cancelled(lambda key=key: store.read(key)))
                tasks.create_task(checked(key))
                tasks.create_task(changed(number))


@pytest.mark.requirement("C-12-postgres-killed")
async def test_a_wait_survives_a_restart_of_the_server(own: PostgresServer) -> None:
    async with store_of(own.url()) as store, store_of(own.url()) as other:
        await store.commit("key", b"")
        record = await store.read("key")
        assert record is not None
        wait = asyncio.create_task(store.events("key", record.position, wait_s=PATIENCE_S))
        await asyncio.sleep(0.1)
        own.kill()
        own.start(fsync="on")
        await until_answered(lambda: other.extend("key", events=[b"news"]))
        try:
            async with asyncio.timeout(PATIENCE_S):
                events = await wait
        except StoreUnavailable:
            events = await store.events("key", record.position)
        assert events == Events(known=True, entries=(Event(record.position + 1, b"news"),))
